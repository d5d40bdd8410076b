#include "constrain/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "constrain/json_number.h"

namespace dllm::constrain {
namespace {

using Json = nlohmann::ordered_json;

CharSet hex_digits() {
  CharSet set('0', '9');
  set.add('a', 'f');
  set.add('A', 'F');
  return set;
}

CharSet chars_of(std::string_view ascii) {
  CharSet set;
  for (const char c : ascii) set.add(static_cast<unsigned char>(c), static_cast<unsigned char>(c));
  return set;
}

/// Characters that a string contains as they are.
const CharSet& plain_chars() {
  static const CharSet set = [] {
    CharSet special(0, 0x1F);
    special.add(chars_of("\"\\"));
    return special.complement();
  }();
  return set;
}

PatternPtr make_string_char() {
  CharSet low = hex_digits().minus(chars_of("dD")), d = chars_of("dD"), to_seven('0', '7');
  const PatternPtr hex = one_of(hex_digits());
  // A surrogate would need a second one.
  const PatternPtr code = either({sequence({one_of(low), hex}), sequence({one_of(d), one_of(to_seven)})});
  const PatternPtr escaped = either({one_of(chars_of("\"\\/bfnrt")), sequence({literal("u"), code, hex, hex})});
  return either({one_of(plain_chars()), sequence({literal("\\"), escaped})});
}

/// One object for all: what is compiled for it is shared, too.
const PatternPtr& string_char() {
  static const PatternPtr pattern = make_string_char();
  return pattern;
}

/// The characters of long strings that must be long: half as many states. Left out are the code points from U+40000 on
/// (private use, and tags of flags), and \u, without which 26 control characters cannot be written.
const PatternPtr& frugal_string_char() {
  constexpr char32_t kLast = 0x3FFFF;
  static const PatternPtr pattern =
      either({one_of(plain_chars().common({0, kLast})), sequence({literal("\\"), one_of(chars_of("\"\\/bfnrt"))})});
  return pattern;
}

/// The characters of strings that must be very long: two states each. They are those of ASCII, without \\u.
const PatternPtr& ascii_string_char() {
  static const PatternPtr pattern =
      either({one_of(plain_chars().common({0, 0x7F})), sequence({literal("\\"), one_of(chars_of("\"\\/bfnrt"))})});
  return pattern;
}

/// How one character of a set is written in a string.
PatternPtr escaped_chars(const CharSet& set) {
  std::vector<PatternPtr> ways;
  if (const CharSet plain = set.common(plain_chars()); !plain.empty()) ways.push_back(one_of(plain));
  const CharSet special = set.minus(plain_chars());
  for (const CharSet::Range& range : special.ranges())
    for (char32_t c = range.first; c <= range.last; ++c) {
      const std::string quoted = Json(std::string(1, static_cast<char>(c))).dump();
      ways.push_back(literal(std::string_view(quoted).substr(1, quoted.size() - 2)));
    }
  return either(std::move(ways));
}

}  // namespace

PatternPtr json_comma() { return sequence({literal(","), maybe(literal(" "))}); }
PatternPtr json_colon() { return sequence({literal(":"), maybe(literal(" "))}); }

PatternPtr json_string(std::int32_t least, std::int32_t most) {
  // A state for each of a few characters is less than counting.
  constexpr std::int32_t kFew = 8, kMany = 200, kVeryMany = 1350;
  const PatternPtr& one = least > kVeryMany ? ascii_string_char()
                          : least > kMany   ? frugal_string_char()
                                            : string_char();
  const PatternPtr needed = repeat(one, least, least);
  const std::int32_t more = most == Pattern::kUnbounded ? most : most - least;
  const PatternPtr rest = more > kFew ? counted(string_char(), more) : repeat(string_char(), 0, more);
  return sequence({literal("\""), needed, rest, literal("\"")});
}

PatternPtr json_string_of(const PatternPtr& content) {
  return sequence({literal("\""), replace_chars(content, escaped_chars), literal("\"")});
}

PatternPtr json_string_of(const PatternPtr& content, std::int32_t least, std::int32_t most) {
  const PatternPtr lengths = repeat(string_char(), least, most);
  return sequence({literal("\""), both(replace_chars(content, escaped_chars), lengths), literal("\"")});
}

PatternPtr json_boolean() { return either({literal("true"), literal("false")}); }

PatternPtr json_value(const Json& value) {
  if (!value.is_structured()) return literal(value.dump());
  std::vector<PatternPtr> parts = {literal(value.is_array() ? "[" : "{")};
  for (const auto& [key, member] : value.items()) {
    if (parts.size() > 1) parts.push_back(json_comma());
    if (value.is_object()) parts.insert(parts.end(), {literal(Json(key).dump()), json_colon()});
    parts.push_back(json_value(member));
  }
  parts.push_back(literal(value.is_array() ? "]" : "}"));
  return sequence(std::move(parts));
}

PatternPtr json_list(const PatternPtr& item, std::int32_t least, std::int32_t most) {
  if (most == 0) return sequence({});
  const PatternPtr more =
      repeat(sequence({json_comma(), item}), std::max(least - 1, 0), most == Pattern::kUnbounded ? most : most - 1);
  const PatternPtr items = sequence({item, more});
  return least == 0 ? maybe(items) : items;
}

PatternPtr json_array(const PatternPtr& item, std::int32_t least, std::int32_t most) {
  return sequence({literal("["), json_list(item, least, most), literal("]")});
}

PatternPtr json_map(const PatternPtr& key, const PatternPtr& value, std::int32_t least, std::int32_t most) {
  const PatternPtr member = sequence({key, json_colon(), value});
  return sequence({literal("{"), json_list(member, least, most), literal("}")});
}

PatternPtr json_any_object(int levels) { return json_map(json_string(), json_any(levels - 1)); }

PatternPtr json_any(int levels) {
  std::vector<PatternPtr> ways = {json_string(), json_number(), json_boolean(), literal("null")};
  if (levels > 0) {
    const PatternPtr inner = json_any(levels - 1);
    ways.push_back(json_array(inner));
    ways.push_back(json_map(json_string(), inner));
  }
  return either(std::move(ways));
}

}  // namespace dllm::constrain
