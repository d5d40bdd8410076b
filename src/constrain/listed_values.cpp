#include "constrain/listed_values.h"

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "constrain/nfa.h"
#include "constrain/regex.h"
#include "constrain/schema_keywords.h"
#include "constrain/schema_merge.h"
#include "constrain/string_format.h"

namespace dllm::constrain {
namespace {

using ListedJson = nlohmann::ordered_json;

constexpr std::int64_t kLongestListed = std::int64_t{1} << 53U;

/// What "type" distinguishes.
std::string kind_of(const ListedJson& value) {
  if (!value.is_number()) return value.type_name();
  return value.is_number_integer() || std::trunc(value.get<double>()) == value.get<double>() ? "integer" : "number";
}

/// Keywords that restrict values. Of those that cannot be beside a list, the names are enough.
ListedJson restricting(const ListedJson& schema) {
  ListedJson all = ListedJson::object();
  for (const auto& [key, value] : schema.items())
    if (restricts(key) && key != "enum" && key != "const")
      all[key] = value.is_structured() && key != "type" ? ListedJson() : value;
  return all;
}

bool beyond_signed(const ListedJson& value) {
  return value.is_number_unsigned() &&
         value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
}

}  // namespace

ListedValues::ListedValues(const SchemaNode& node, std::int64_t& work)
    : keywords_(std::make_shared<const ListedJson>(restricting(node.json))),
      node_{*keywords_, node.path},
      work_(work) {}

Expected<bool> ListedValues::of_type(const ListedJson& value) {
  const auto [place, fresh] = of_type_.try_emplace(kind_of(value), false);
  if (fresh) {
    DLLM_TRY(place->second, node_.type_admits(value));
  }
  return place->second;
}

Expected<void> ListedValues::check(const std::string& kind) {
  static constexpr std::string_view kList[] = {"type"};
  static constexpr std::string_view kText[] = {"type", "format", "minLength", "maxLength", "pattern"};
  static constexpr std::string_view kNumber[] = {
      "type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
  if (!checked_.try_emplace(kind, true).second) return {};
  const std::string type[] = {kind};
  if (kind == "string") return check_keywords(node_, kText, type);
  if (kind == "number") return check_keywords(node_, kNumber, type);
  return check_keywords(node_, kList, type);
}

Expected<bool> ListedValues::admit(const ListedJson& value) {
  DLLM_TRY(const bool typed, of_type(value));
  if (!typed) return false;
  DLLM_CHECK_OK(check(value.is_number() ? "number" : value.type_name()));
  if (value.is_string()) return admit_text(value.get_ref<const std::string&>());
  return value.is_number() ? admit_number(value) : true;
}

Expected<bool> ListedValues::admit_text(const std::string& text) {
  if (!texts_) DLLM_CHECK_OK(read_texts());
  const std::int64_t length = text_length(literal(text)).least;
  if (length < texts_->least || (texts_->most && length > *texts_->most)) return false;
  for (const Matcher& one : texts_->patterns)
    if (one.dfa.matches(text) == one.negated) return false;
  return true;
}

Expected<void> ListedValues::read_texts() {
  Texts texts;
  DLLM_TRY(const auto least, node_.integer("minLength", 0, kLongestListed));
  DLLM_TRY(texts.most, node_.integer("maxLength", 0, kLongestListed));
  texts.least = least.value_or(0);
  DLLM_CHECK_OK(read_pattern(texts.patterns));
  texts_ = std::move(texts);
  return {};
}

Expected<void> ListedValues::read_pattern(std::vector<Matcher>& patterns) {
  if (!node_.json.contains("pattern")) return {};
  const SchemaNode own = node_.at("pattern");
  if (!own.json.is_string()) return own.bad("it must be a text");
  for (const StringPattern& one : string_patterns(own.json.get_ref<const std::string&>())) {
    const auto content = parse_regex(one.expression, RegexScope::kSearch);
    if (!content) return own.bad(content.error().where + ": " + content.error().what, content.error().hint);
    Products products;
    auto dfa = language(**content, {}, work_, products);  // compile() might leave texts out
    if (!dfa) return own.bad(dfa.error().what, dfa.error().hint);
    patterns.push_back({*std::move(dfa), one.negated});
  }
  return {};
}

Expected<bool> ListedValues::admit_number(const ListedJson& value) const {
  const ListedJson& schema = node_.json;
  for (const char* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) {
    if (!schema.contains(key)) continue;
    if (!schema[key].is_number()) return node_.at(key).bad("it must be a number");
    // They would be compared as if they had a sign.
    if (beyond_signed(value) || beyond_signed(schema[key]))
      return node_.bad("integers from 2^63 on are not supported where listed numbers have bounds", "leave them out");
  }
  const auto beyond = [&](const char* key, auto wrong) { return schema.contains(key) && wrong(value, schema[key]); };
  if (beyond("minimum", std::less<>()) || beyond("exclusiveMinimum", std::less_equal<>()) ||
      beyond("maximum", std::greater<>()) || beyond("exclusiveMaximum", std::greater_equal<>()))
    return false;
  if (!schema.contains("multipleOf")) return true;
  const ListedJson& multiple = schema["multipleOf"];
  if (!multiple.is_number_integer() || multiple <= 0 || !value.is_number_integer())
    return node_.at("multipleOf").bad("beside listed numbers it is supported of integers only", "leave it out");
  return value.get<std::int64_t>() % multiple.get<std::int64_t>() == 0;
}

}  // namespace dllm::constrain
