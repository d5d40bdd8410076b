#include "constrain/string_format.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "constrain/regex.h"

namespace dllm::constrain {
namespace {

/// Eight groups, or fewer with one run left out.
std::string ipv6() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  const auto groups = [&](int count) {
    return count == 0   ? std::string()
           : count == 1 ? group
                        : group + "(:" + group + "){" + std::to_string(count - 1) + "}";
  };
  std::string text = "(" + groups(8);
  for (int before = 0; before <= 7; ++before)
    for (int after = 0; before + after <= 7; ++after) text += "|" + groups(before) + "::" + groups(after);
  return text + ")";
}

/// Groups of four characters of six bits, and padding.
std::string base64(std::string_view last_two) {
  const std::string one = "[A-Za-z0-9" + std::string(last_two) + "]";
  return "(" + one + "{4}){0,20}(" + one + "[AQgw]==|" + one + "{2}[AEIMQUYcgkosw048]=)?";
}

/// Dates, times and durations; empty: the format is none of them.
std::string time_expression(std::string_view name) {
  // RFC 3339 dates of the years 0001 to 9999. A year is a leap year if its last two digits are divisible by four and
  // not both zero, or its first two are.
  const std::string fours = "(0[48]|[2468][048]|[13579][26])";
  const std::string year = "(000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d\\d\\d)";
  const std::string date = "(" + year +
                           "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
                           "02-(0[1-9]|1\\d|2[0-8]))|(\\d\\d" +
                           fours + "|" + fours + "00)-02-29)";
  // Without leap seconds, which many readers refuse.
  const std::string clock = "([01]\\d|2[0-3]):[0-5]\\d";
  const std::string time = clock + ":[0-5]\\d(\\.\\d{1,6})?(Z|[+-]" + clock + ")";
  // RFC 3339, appendix A: units follow each other without gaps.
  const std::string hours = "T(\\d{1,4}H(\\d{1,4}M(\\d{1,4}S)?)?|\\d{1,4}M(\\d{1,4}S)?|\\d{1,4}S)";
  const std::string days = "(\\d{1,4}Y(\\d{1,4}M(\\d{1,4}D)?)?|\\d{1,4}M(\\d{1,4}D)?|\\d{1,4}D)";
  const std::string duration = "P(" + days + "(" + hours + ")?|" + hours + "|\\d{1,4}W)";
  if (name == "date") return date;
  if (name == "time") return time;
  if (name == "date-time") return date + "T" + time;
  if (name == "duration") return duration;
  return "";
}

/// Names and addresses.
std::string name_expression(std::string_view name) {
  // Names of RFC 1123 with room to spare (63 characters a label, 253 in all), and a last label of letters.
  const std::string label = "[A-Za-z0-9]{1,24}(-[A-Za-z0-9]{1,24})?";
  const std::string domain = "(" + label + "\\.){1,3}[A-Za-z]{2,12}";
  const std::string atom = "[A-Za-z0-9_+-]{1,20}";
  const std::string email = atom + "(\\." + atom + "){0,2}@" + domain;
  const std::string byte = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  const std::string ipv4 = byte + "(\\." + byte + "){3}";
  // http and https: other schemes are valid too, but a reader that wants a URL refuses most of them.
  const std::string uri = "https?://(" + domain + "|localhost|" + ipv4 +
                          ")(:[1-9]\\d{0,3})?(/[A-Za-z0-9._~!$&'()*+,;=:@/-]{0,100})?"
                          "(\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]{0,60})?";
  if (name == "uuid") return "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
  // Of a version (RFC 9562, section 4), as pydantic names them.
  if (name.size() == 5 && name.starts_with("uuid") && name[4] >= '1' && name[4] <= '8')
    return std::string("[0-9a-f]{8}-[0-9a-f]{4}-") + name[4] + "[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}";
  if (name == "email" || name == "idn-email") return email;
  if (name == "hostname" || name == "idn-hostname") return label + "(\\." + label + "){0,3}";
  // An address alone is a network, and an interface, of one.
  if (name == "ipv4" || name == "ipv4network" || name == "ipv4interface" || name.starts_with("ipvany")) return ipv4;
  if (name == "ipv6" || name == "ipv6network" || name == "ipv6interface") return ipv6();
  if (name == "base64") return base64("+/");
  if (name == "base64url") return base64("_-");
  if (name == "json-pointer") return "(/([A-Za-z0-9._-]|~[01]){1,20}){0,4}";
  if (name == "uri" || name == "iri" || name == "uri-template" || name == "uri-reference" || name == "iri-reference")
    return uri;
  return "";
}

class Lengths {
 public:
  TextLength of(const PatternPtr& pattern) {
    const auto known = known_.find(pattern.get());
    if (known != known_.end()) return known->second;
    const TextLength length = measure(*pattern);
    known_.emplace(pattern.get(), length);
    return length;
  }

 private:
  static constexpr std::int64_t kUnbounded = Pattern::kUnbounded;
  static std::int64_t sum(std::int64_t a, std::int64_t b) {
    return a == kUnbounded || b == kUnbounded ? kUnbounded : std::min(a + b, kFar);
  }
  static std::int64_t times(std::int64_t length, std::int64_t count) {
    if (length == 0 || count == 0) return 0;
    return length == kUnbounded || count == kUnbounded ? kUnbounded : std::min(length * count, kFar);
  }

  TextLength measure(const Pattern& pattern) {
    if (pattern.kind == Pattern::Kind::kChars) return {1, 1};
    if (pattern.kind == Pattern::Kind::kText) {
      const auto continues = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; };
      const auto chars = std::ranges::count_if(pattern.text, [&](char byte) { return !continues(byte); });
      return {chars, chars};
    }
    if (pattern.kind == Pattern::Kind::kRepeat) {
      const TextLength one = of(pattern.parts.front());
      return {times(one.least, pattern.least), times(one.most, pattern.most)};
    }
    if (pattern.kind == Pattern::Kind::kExcept) return of(pattern.parts[0]);
    if (pattern.kind == Pattern::Kind::kBoth) {
      const TextLength a = of(pattern.parts[0]), b = of(pattern.parts[1]);
      const bool one = a.most == kUnbounded || b.most == kUnbounded;
      return {std::max(a.least, b.least), one ? std::max(a.most, b.most) : std::min(a.most, b.most)};
    }
    TextLength all;
    bool first = true;
    for (const PatternPtr& part : pattern.parts) {
      const TextLength one = of(part);
      if (pattern.kind == Pattern::Kind::kSequence) {
        all = {sum(all.least, one.least), sum(all.most, one.most)};
      } else {
        const bool unbounded = one.most == kUnbounded || all.most == kUnbounded;
        all = {first ? one.least : std::min(all.least, one.least),
               unbounded ? kUnbounded : std::max(all.most, one.most)};
      }
      first = false;
    }
    return all;
  }

  static constexpr std::int64_t kFar = std::int64_t{1} << 40;  ///< longer than any bound; products stay below 2^63
  std::unordered_map<const Pattern*, TextLength> known_;
};

}  // namespace

PatternPtr string_format(std::string_view name) {
  std::string text = time_expression(name);
  if (text.empty()) text = name_expression(name);
  if (text.empty()) return nullptr;
  return *parse_regex(text);
}

TextLength text_length(const PatternPtr& pattern) { return Lengths().of(pattern); }

}  // namespace dllm::constrain
