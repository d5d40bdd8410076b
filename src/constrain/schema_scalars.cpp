#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "constrain/json_multiples.h"
#include "constrain/json_number.h"
#include "constrain/json_text.h"
#include "constrain/regex.h"
#include "constrain/schema_merge.h"
#include "constrain/schema_reader.h"
#include "constrain/string_format.h"

namespace dllm::constrain {
namespace {

/// A bound that must be a number, and was a flag beside another one in draft 4.
Expected<void> check_number(const SchemaNode& node, const char* key) {
  if (!node.json.contains(key) || node.json[key].is_number()) return {};
  return node.at(key).bad("it must be a number", "exclusiveMinimum and exclusiveMaximum are bounds themselves");
}

PatternPtr any_text() { return repeat(one_of(CharSet::all()), 0, Pattern::kUnbounded); }

constexpr std::int64_t kMostLength = 100'000;

constexpr const char* kBounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};

Expected<void> check_numbers(const SchemaNode& node) {
  for (const char* key : kBounds) DLLM_CHECK_OK(check_number(node, key));
  return {};
}

struct NumberBound {
  const char* key;  ///< null: none
  bool strict;
};

/// The narrower of a bound and a strict one. `side`: 1, if larger bounds are narrower; -1, if smaller ones are.
NumberBound narrower(const SchemaNode& node, const char* bound, const char* strict, double side) {
  const bool has = node.json.contains(bound), has_strict = node.json.contains(strict);
  if (!has && !has_strict) return {nullptr, false};
  if (has && has_strict) {
    const double difference = side * (node.json[strict].get<double>() - node.json[bound].get<double>());
    return difference >= 0 ? NumberBound{strict, true} : NumberBound{bound, false};
  }
  return has ? NumberBound{bound, false} : NumberBound{strict, true};
}

/// Whether a number is between the bounds of a schema.
bool leaves_room(const nlohmann::ordered_json& schema) {
  const SchemaNode node{schema, ""};
  const NumberBound low = narrower(node, "minimum", "exclusiveMinimum", 1),
                    high = narrower(node, "maximum", "exclusiveMaximum", -1);
  if (low.key == nullptr || high.key == nullptr) return true;
  const double from = schema[low.key].get<double>(), to = schema[high.key].get<double>();
  return from < to || (from == to && !low.strict && !high.strict);
}

Expected<std::optional<Decimal>> decimal_bound(const SchemaNode& node, const NumberBound& bound) {
  if (bound.key == nullptr) return std::optional<Decimal>();
  auto decimal = decimal_of(node.json[bound.key], bound.strict);
  if (!decimal) return node.at(bound.key).bad("bounds of numbers have at most 15 digits");
  return decimal;
}

Expected<Multiple> multiple_at(const SchemaNode& node) {
  const SchemaNode own = node.at("multipleOf");
  const auto multiple = own.json.is_number() ? multiple_of(own.json) : std::nullopt;
  if (!multiple) return own.bad("it must be a positive number of at most 15 digits, six of them after the point");
  return *multiple;
}

/// An integer's bound. All multiples have at most 18 digits, so bounds beyond them are nearer.
std::optional<Decimal> decimal_of_integer(std::optional<std::int64_t> bound) {
  constexpr std::int64_t kMost = 999'999'999'999'999'999;
  if (!bound) return std::nullopt;
  const std::int64_t near = std::clamp(*bound, -kMost, kMost);
  return Decimal{.negative = near < 0, .whole = std::to_string(std::abs(near))};
}

Expected<PatternPtr> multiples(const SchemaNode& node, const Multiple& multiple, const std::optional<Decimal>& low,
                               const std::optional<Decimal>& high) {
  if (PatternPtr pattern = json_multiples(multiple, low, high)) return pattern;
  return node.at("multipleOf")
      .bad("no multiple is within the bounds, or their digits take too many states", "list the values in an \"enum\"");
}

Expected<PatternPtr> format_content(const SchemaNode& node) {
  if (!node.json.contains("format")) return PatternPtr();
  const SchemaNode own = node.at("format");
  if (!own.json.is_string()) return own.bad("it must be a name");
  return string_format(own.json.get_ref<const std::string&>());
}

}  // namespace

/// What a string holds, unescaped; null: anything. A format beside a pattern is taken to be what the pattern says.
Expected<PatternPtr> SchemaReader::string_content(const SchemaNode& node) {
  if (node.json.contains("pattern")) {
    const SchemaNode own = node.at("pattern");
    if (!own.json.is_string()) return own.bad("it must be a text");
    const auto stated = string_patterns(own.json.get_ref<const std::string&>());
    PatternPtr all;
    if (std::ranges::all_of(stated, &StringPattern::negated)) {
      DLLM_TRY(all, format_content(node));
    }
    for (const StringPattern& one : stated) {
      auto content = parse_regex(one.expression, RegexScope::kSearch);
      if (!content) return own.bad(content.error().where + ": " + content.error().what, content.error().hint);
      if (one.negated)
        all = except(all ? all : any_text(), *content);
      else
        all = all ? both(all, *content) : *content;
    }
    return all;
  }
  return format_content(node);
}

Expected<PatternPtr> SchemaReader::string(const SchemaNode& node) {
  DLLM_TRY(Bounds length, bounds(node, "minLength", "maxLength"));
  DLLM_TRY(PatternPtr content, string_content(node));
  std::vector<PatternPtr> excluded;
  for (const Json& value : excluded_values(node)) {
    if (!value.is_string()) continue;
    if (content || !value.get_ref<const std::string&>().empty())
      excluded.push_back(literal(value.get_ref<const std::string&>()));
    else
      length.least = std::max(length.least, 1);
  }
  if (!excluded.empty()) content = except(content ? content : any_text(), either(std::move(excluded)));
  if (!content && length.most != Pattern::kUnbounded && length.least > length.most)
    return either({});  // "" is excluded
  if (!content) return json_string(length.least, length.most);
  // Texts that have the lengths by themselves need not be counted.
  const TextLength texts = text_length(content);
  const bool short_ones = texts.least < length.least;
  const bool long_ones =
      length.most != Pattern::kUnbounded && (texts.most == Pattern::kUnbounded || texts.most > length.most);
  if (!short_ones && !long_ones) return json_string_of(content);
  if (long_ones && texts.least > length.most) return node.at("maxLength").bad("all texts of its form are longer");
  if (short_ones && texts.most != Pattern::kUnbounded && texts.most < length.least)
    return node.at("minLength").bad("all texts of its form are shorter");
  // Each character is a state, or several, times those of the expression: of a wide bound a part is produced.
  constexpr std::int32_t kLongest = 200;
  const auto needed = static_cast<std::int32_t>(std::min<std::int64_t>(texts.least, kMostLength));
  const std::int32_t most = std::min(length.most, std::max({length.least, needed, kLongest}));
  return json_string_of(content, short_ones ? length.least : 0, long_ones ? most : Pattern::kUnbounded);
}

Expected<PatternPtr> SchemaReader::integer(const SchemaNode& node) {
  DLLM_CHECK_OK(check_numbers(node));
  std::optional<std::int64_t> low, high;
  for (const auto& [key, strict] : {std::pair("minimum", false), std::pair("exclusiveMinimum", true)}) {
    if (!node.json.contains(key)) continue;
    const auto least = least_integer(node.json[key], strict);
    if (!least) return node.at(key).bad("no integer of 64 bits is within the bound");
    low = std::max(low.value_or(*least), *least);
  }
  for (const auto& [key, strict] : {std::pair("maximum", false), std::pair("exclusiveMaximum", true)}) {
    if (!node.json.contains(key)) continue;
    const auto greatest = greatest_integer(node.json[key], strict);
    if (!greatest) return node.at(key).bad("no integer of 64 bits is within the bound");
    high = std::min(high.value_or(*greatest), *greatest);
  }
  if (low && high && *low > *high) return node.bad("no integer is within the bounds");
  PatternPtr all;
  if (node.json.contains("multipleOf")) {
    DLLM_TRY(const Multiple multiple, multiple_at(node));
    DLLM_TRY(all, multiples(node, whole_multiple(multiple), decimal_of_integer(low), decimal_of_integer(high)));
  } else {
    all = json_integer(low, high);
  }
  std::vector<PatternPtr> excluded;
  for (const Json& value : excluded_values(node)) {
    if (!value.is_number() || value.get<double>() != std::trunc(value.get<double>())) continue;
    const auto same = least_integer(value, /*strict=*/false);
    if (same) excluded.push_back(literal(std::to_string(*same)));
    if (same == 0) excluded.push_back(literal("-0"));
  }
  return excluded.empty() ? all : except(all, either(std::move(excluded)));
}

/// Between the numbers that are excluded, each of which may be written in several ways.
Expected<PatternPtr> SchemaReader::number(const SchemaNode& node) {
  constexpr std::size_t kMostExcluded = 64;
  std::vector<Json> excluded = excluded_values(node);
  std::erase_if(excluded, [](const Json& value) { return !value.is_number(); });
  if (excluded.empty()) return numbers_between(node);
  if (excluded.size() > kMostExcluded) return node.at("not").bad(fmt::format("more than {} numbers", kMostExcluded));
  DLLM_CHECK_OK(check_numbers(node));
  for (const Json& value : excluded)
    if (!decimal_of(value, /*strict=*/true)) return node.at("not").bad("a number has at most 15 digits");
  std::ranges::sort(excluded, {}, [](const Json& value) { return value.get<double>(); });
  const NumberBound low = narrower(node, "minimum", "exclusiveMinimum", 1),
                    high = narrower(node, "maximum", "exclusiveMaximum", -1);
  const Json plain = keywords_beside(node.json, "not");
  std::vector<PatternPtr> ways;
  std::optional<Error> wrong;
  for (std::size_t i = 0; i <= excluded.size(); ++i) {
    Json between = plain;
    if (i > 0 && (low.key == nullptr || plain[low.key].get<double>() <= excluded[i - 1].get<double>()))
      between.erase("minimum"), between["exclusiveMinimum"] = excluded[i - 1];
    if (i < excluded.size() && (high.key == nullptr || plain[high.key].get<double>() >= excluded[i].get<double>()))
      between.erase("maximum"), between["exclusiveMaximum"] = excluded[i];
    if (!leaves_room(between)) continue;
    auto way = numbers_between({between, node.path});
    if (!way) wrong = std::move(way).error();  // perhaps no multiple is between two of them
    if (way) ways.push_back(*std::move(way));
  }
  if (ways.empty() && wrong) return *wrong;
  return either(std::move(ways));
}

Expected<PatternPtr> SchemaReader::numbers_between(const SchemaNode& node) {
  DLLM_CHECK_OK(check_numbers(node));
  const NumberBound low = narrower(node, "minimum", "exclusiveMinimum", 1),
                    high = narrower(node, "maximum", "exclusiveMaximum", -1);
  const bool multiple_given = node.json.contains("multipleOf");
  if (low.key == nullptr && high.key == nullptr && !multiple_given) return json_number();
  if (!leaves_room(node.json)) return node.bad("no number is within the bounds");
  DLLM_TRY(const auto least, decimal_bound(node, low));
  DLLM_TRY(const auto greatest, decimal_bound(node, high));
  if (!multiple_given) return json_number_between(least, greatest);
  DLLM_TRY(const Multiple multiple, multiple_at(node));
  return multiples(node, multiple, least, greatest);
}

}  // namespace dllm::constrain
