#include "constrain/json_text.h"

#include <algorithm>
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

/// Decimal numbers of the same length, from `low` to `high`.
PatternPtr same_length(std::string_view low, std::string_view high) {
  if (low.empty()) return sequence({});
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  const auto rest = static_cast<std::int32_t>(low_rest.size());
  const auto digit = [](char c) { return static_cast<char32_t>(static_cast<unsigned char>(c)); };
  if (low[0] == high[0]) return sequence({one_of({digit(low[0]), digit(low[0])}), same_length(low_rest, high_rest)});
  const std::string nines(low_rest.size(), '9'), zeros(low_rest.size(), '0');
  std::vector<PatternPtr> ways = {sequence({one_of({digit(low[0]), digit(low[0])}), same_length(low_rest, nines)}),
                                  sequence({one_of({digit(high[0]), digit(high[0])}), same_length(zeros, high_rest)})};
  if (high[0] - low[0] > 1)
    ways.push_back(sequence({one_of({digit(low[0]) + 1, digit(high[0]) - 1}), digits(rest, rest)}));
  return either(std::move(ways));
}

/// Numbers from `low` to `high` >= `low` >= 0.
PatternPtr natural_range(std::int64_t low, std::int64_t high) {
  std::vector<PatternPtr> ways;
  for (std::int64_t first = low;;) {
    const std::string text = std::to_string(first);
    const std::int64_t last = std::min<std::int64_t>(high, std::stoll(std::string(text.size(), '9')));
    ways.push_back(same_length(text, std::to_string(last)));
    if (last == high) return either(std::move(ways));
    first = last + 1;
  }
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
  const std::int64_t low = minimum.value_or(-most + 1), high = maximum.value_or(most - 1);
  std::vector<PatternPtr> ways;
  if (low > high) return either({});
  if (high >= 0) ways.push_back(natural_range(std::max<std::int64_t>(low, 0), high));
  if (low < 0) ways.push_back(sequence({literal("-"), natural_range(-std::min<std::int64_t>(high, -1), -low)}));
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
