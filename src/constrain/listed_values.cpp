#include "constrain/listed_values.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "constrain/regex.h"
#include "constrain/schema_keywords.h"
#include "constrain/schema_merge.h"
#include "constrain/string_format.h"

namespace dllm::constrain {
namespace {

using ListedJson = nlohmann::ordered_json;

constexpr std::int64_t kLongestListed = std::int64_t{1} << 53U;

}  // namespace

Expected<bool> ListedValues::admit(const ListedJson& value) {
  static constexpr std::string_view kList[] = {"type", "const", "enum"};
  static constexpr std::string_view kText[] = {"type", "const", "enum", "format", "minLength", "maxLength", "pattern"};
  static constexpr std::string_view kNumber[] = {
      "type", "const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
  DLLM_TRY(const bool typed, node_.type_admits(value));
  if (!typed) return false;
  const std::string type[] = {value.is_number() ? "number" : value.type_name()};
  if (value.is_string()) {
    DLLM_CHECK_OK(check_keywords(node_, kText, type));
    return admit_text(value.get_ref<const std::string&>());
  }
  if (value.is_number()) {
    DLLM_CHECK_OK(check_keywords(node_, kNumber, type));
    return admit_number(value);
  }
  DLLM_CHECK_OK(check_keywords(node_, kList, type));
  return true;
}

Expected<bool> ListedValues::admit_text(const std::string& text) {
  DLLM_TRY(const auto least, node_.integer("minLength", 0, kLongestListed));
  DLLM_TRY(const auto most, node_.integer("maxLength", 0, kLongestListed));
  const std::int64_t length = text_length(literal(text)).least;
  if (length < least.value_or(0) || (most && length > *most)) return false;
  if (!patterns_) DLLM_CHECK_OK(read_pattern());
  for (const Matcher& one : *patterns_)
    if (one.dfa.matches(text) == one.negated) return false;
  return true;
}

Expected<void> ListedValues::read_pattern() {
  patterns_.emplace();
  if (!node_.json.contains("pattern")) return {};
  const SchemaNode own = node_.at("pattern");
  if (!own.json.is_string()) return own.bad("it must be a text");
  for (const StringPattern& one : string_patterns(own.json.get_ref<const std::string&>())) {
    const auto content = parse_regex(one.expression, RegexScope::kSearch);
    if (!content) return own.bad(content.error().where + ": " + content.error().what, content.error().hint);
    auto dfa = compile(**content);
    if (!dfa) return own.bad(dfa.error().what, dfa.error().hint);
    patterns_->push_back({*std::move(dfa), one.negated});
  }
  return {};
}

Expected<bool> ListedValues::admit_number(const ListedJson& value) const {
  const ListedJson& schema = node_.json;
  for (const char* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
    if (schema.contains(key) && !schema[key].is_number()) return node_.at(key).bad("it must be a number");
  const auto beyond = [&](const char* key, auto wrong) { return schema.contains(key) && wrong(value, schema[key]); };
  if (beyond("minimum", std::less<>()) || beyond("exclusiveMinimum", std::less_equal<>()) ||
      beyond("maximum", std::greater<>()) || beyond("exclusiveMaximum", std::greater_equal<>()))
    return false;
  if (!schema.contains("multipleOf")) return true;
  const SchemaNode own = node_.at("multipleOf");
  if (!own.json.is_number_integer() || own.json <= 0 || !value.is_number_integer())
    return own.bad("beside listed numbers it is supported of integers only", "leave it out");
  return value.get<std::int64_t>() % own.json.get<std::int64_t>() == 0;
}

}  // namespace dllm::constrain
