#include "constrain/json_text.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

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

PatternPtr string_char() {
  CharSet low = hex_digits().minus(chars_of("dD")), d = chars_of("dD"), to_seven('0', '7');
  const PatternPtr hex = one_of(hex_digits());
  // A surrogate would need a second one.
  const PatternPtr code = either({sequence({one_of(low), hex}), sequence({one_of(d), one_of(to_seven)})});
  const PatternPtr escaped = either({one_of(chars_of("\"\\/bfnrt")), sequence({literal("u"), code, hex, hex})});
  return either({one_of(plain_chars()), sequence({literal("\\"), escaped})});
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

PatternPtr digits(std::int32_t least, std::int32_t most) { return repeat(one_of({'0', '9'}), least, most); }

PatternPtr digit(char first, char last) {
  return one_of({static_cast<unsigned char>(first), static_cast<unsigned char>(last)});
}

/// Decimal numbers between bounds, in states that grow with the digits of the bounds: a number's tail is free, bounded
/// from one side, or from both while it equals both bounds. Free tails are one chain, which all numbers share.
class DecimalRange {
 public:
  /// Numbers from `low` to `high` >= `low`.
  PatternPtr between(std::uint64_t low, std::uint64_t high) {
    std::vector<PatternPtr> ways;
    const std::string first = std::to_string(low), last = std::to_string(high);
    for (std::size_t size = first.size(); size <= last.size(); ++size) {
      // The numbers of `size` digits: those of the shorter or longer bound are all there are.
      const std::string from = size == first.size() ? first : "1" + std::string(size - 1, '0');
      const std::string to = size == last.size() ? last : std::string(size, '9');
      ways.push_back(same_length(from, to));
    }
    return either(std::move(ways));
  }

 private:
  PatternPtr same_length(std::string_view low, std::string_view high) {
    const std::size_t rest = low.size() - 1;
    if (low.find_first_not_of('0') == low.npos && high.find_first_not_of('9') == high.npos) return free(low.size());
    if (rest == 0) return digit(low[0], high[0]);
    if (low[0] == high[0]) return sequence({digit(low[0], low[0]), same_length(low.substr(1), high.substr(1))});
    std::vector<PatternPtr> ways;
    const std::string zeros(rest, '0'), nines(rest, '9');
    char first = low[0], last = high[0];
    if (low.substr(1) != zeros)
      ways.push_back(sequence({digit(first, first), same_length(low.substr(1), nines)})), ++first;
    if (high.substr(1) != nines)
      ways.push_back(sequence({digit(last, last), same_length(zeros, high.substr(1))})), --last;
    if (first <= last) ways.push_back(sequence({digit(first, last), free(rest)}));
    return either(std::move(ways));
  }

  /// So many digits.
  PatternPtr free(std::size_t count) {
    while (free_.size() <= count) free_.push_back(sequence({digit('0', '9'), free_.back()}));
    return free_[count];
  }

  std::vector<PatternPtr> free_ = {sequence({})};
};

/// |value|, also of the smallest one.
std::uint64_t magnitude(std::int64_t value) {
  return value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
}

PatternPtr object_of(const PatternPtr& value) {
  const PatternPtr member = sequence({json_string(), json_colon(), value});
  const PatternPtr more = repeat(sequence({json_comma(), member}), 0, Pattern::kUnbounded);
  return sequence({literal("{"), maybe(sequence({member, more})), literal("}")});
}

}  // namespace

PatternPtr json_comma() { return sequence({literal(","), maybe(literal(" "))}); }
PatternPtr json_colon() { return sequence({literal(":"), maybe(literal(" "))}); }

PatternPtr json_string(std::int32_t least, std::int32_t most) {
  return sequence({literal("\""), repeat(string_char(), least, most), literal("\"")});
}

PatternPtr json_string_of(const PatternPtr& content) {
  return sequence({literal("\""), replace_chars(content, escaped_chars), literal("\"")});
}

PatternPtr json_integer(std::optional<std::int64_t> minimum, std::optional<std::int64_t> maximum) {
  if (!minimum && !maximum)
    return sequence(
        {maybe(literal("-")), either({literal("0"), sequence({one_of({'1', '9'}), digits(0, kMostDigits - 1)})})});
  std::int64_t most = 1;
  for (std::int32_t i = 0; i < kMostDigits; ++i) most *= 10;
  // The side that is left open reaches as far as a double is exact, or as the other one needs.
  constexpr auto kAll = std::numeric_limits<std::int64_t>::max();
  const std::int64_t low = minimum.value_or(*maximum > -most ? -most + 1 : -kAll - 1);
  const std::int64_t high = maximum.value_or(*minimum < most ? most - 1 : kAll);
  if (low > high) return either({});
  std::vector<PatternPtr> ways;
  DecimalRange range;
  if (high >= 0) ways.push_back(range.between(low < 0 ? 0 : magnitude(low), magnitude(high)));
  if (low < 0) ways.push_back(sequence({literal("-"), range.between(high < 0 ? magnitude(high) : 1, magnitude(low))}));
  return either(std::move(ways));
}

PatternPtr json_number() {
  const PatternPtr sign = maybe(one_of(chars_of("+-")));
  return sequence({json_integer(), maybe(sequence({literal("."), digits(1, kMostDigits)})),
                   maybe(sequence({one_of(chars_of("eE")), sign, digits(1, kMostExponentDigits)}))});
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

PatternPtr json_array(const PatternPtr& item, std::int32_t least, std::int32_t most) {
  const PatternPtr more = repeat(sequence({json_comma(), item}), std::max(least - 1, 0),
                                 most == Pattern::kUnbounded ? most : std::max(most - 1, 0));
  const PatternPtr items = most == 0 ? sequence({}) : sequence({item, more});
  return sequence({literal("["), least == 0 ? maybe(items) : items, literal("]")});
}

PatternPtr json_any_object(int levels) { return object_of(json_any(levels - 1)); }

PatternPtr json_any(int levels) {
  std::vector<PatternPtr> ways = {json_string(), json_number(), json_boolean(), literal("null")};
  if (levels > 0) {
    const PatternPtr inner = json_any(levels - 1);
    ways.push_back(json_array(inner));
    ways.push_back(object_of(inner));
  }
  return either(std::move(ways));
}

}  // namespace dllm::constrain
