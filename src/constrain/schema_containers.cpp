#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "constrain/dfa.h"
#include "constrain/exclusive.h"
#include "constrain/json_schema.h"
#include "constrain/json_text.h"
#include "constrain/listed_values.h"
#include "constrain/nfa.h"
#include "constrain/regex.h"
#include "constrain/schema_keywords.h"
#include "constrain/schema_merge.h"
#include "constrain/schema_negation.h"
#include "constrain/schema_reader.h"

namespace dllm::constrain {
namespace {

using OrderedSchema = nlohmann::ordered_json;

constexpr std::size_t kMostProperties = 512;
constexpr std::size_t kMostTuple = 256;
constexpr std::size_t kMostUnique = 64;
/// Different values in any order are 2^n states, and in the order of the schema n^2.
constexpr std::size_t kMostInAnyOrder = 6;

/// Lists of different values.
class UniqueLists {
 public:
  UniqueLists(const std::vector<PatternPtr>& values, std::int32_t least, std::int32_t most)
      : values_(values), least_(least), most_(most) {}

  PatternPtr run() {
    return sequence({literal("["), values_.size() <= kMostInAnyOrder ? any_order(0) : in_order(0, 0), literal("]")});
  }

 private:
  PatternPtr next(std::size_t value, bool first) const {
    return first ? values_[value] : sequence({json_comma(), values_[value]});
  }

  /// What may follow these values.
  PatternPtr any_order(std::uint32_t used) {
    if (const auto known = after_.find(used); known != after_.end()) return known->second;
    const auto count = static_cast<std::int32_t>(std::popcount(used));
    std::vector<PatternPtr> ways;
    if (count >= least_) ways.push_back(sequence({}));
    for (std::size_t i = 0; i < values_.size() && count < most_; ++i)
      if (((used >> i) & 1U) == 0) ways.push_back(sequence({next(i, count == 0), any_order(used | (1U << i))}));
    return after_[used] = either(std::move(ways));
  }

  /// What may follow `count` of the values before `from`.
  PatternPtr in_order(std::uint32_t from, std::int32_t count) {
    const std::uint32_t key = (from << 16U) | static_cast<std::uint32_t>(count);
    if (const auto known = after_.find(key); known != after_.end()) return known->second;
    std::vector<PatternPtr> ways;
    if (count >= least_) ways.push_back(sequence({}));
    if (from < values_.size() && count < most_)
      ways.push_back(sequence({next(from, count == 0), in_order(from + 1, count + 1)}));
    if (from < values_.size() && count < most_) ways.push_back(in_order(from + 1, count));
    return after_[key] = either(std::move(ways));
  }

  const std::vector<PatternPtr>& values_;
  std::int32_t least_, most_;
  std::map<std::uint32_t, PatternPtr> after_;
};

/// `items` is a list in drafts before 2020-12.
const OrderedSchema* tuple_of(const OrderedSchema& schema, std::string& key) {
  key = schema.contains("prefixItems") ? "prefixItems" : "items";
  return schema.contains(key) && (key == "prefixItems" || schema[key].is_array()) ? &schema[key] : nullptr;
}

/// Whether it restricts no name.
bool any_name(const OrderedSchema& names) {
  return names == OrderedSchema(true) || (names.is_object() && !restricts_beside(names, ""));
}

}  // namespace

Expected<SchemaReader::ArrayItems> SchemaReader::array_items(const SchemaNode& node) {
  ArrayItems result;
  std::string key;
  const Json* tuple = tuple_of(node.json, key);
  if (tuple != nullptr) {
    const SchemaNode own = node.at(key);
    if (!tuple->is_array()) return own.bad("it must be a list of schemas");
    if (tuple->size() > kMostTuple) return own.bad(fmt::format("more than {} schemas", kMostTuple));
    for (std::size_t i = 0; i < tuple->size(); ++i) {
      DLLM_TRY(PatternPtr one, read({(*tuple)[i], fmt::format("{}[{}]", own.path, i)}));
      result.first.push_back(std::move(one));
    }
  }
  const char* rest = key == "items" && tuple != nullptr ? "additionalItems" : "items";
  if (!node.json.contains(rest)) {
    result.others = json_any(kOpenLevels - 1);
    result.others_if_needed = tuple != nullptr;
  } else if (node.json[rest] != Json(false)) {
    DLLM_TRY(result.others, read(node.at(rest)));
    result.others_if_needed = tuple != nullptr && node.json[rest] == Json(true);
  }
  return result;
}

Expected<PatternPtr> SchemaReader::array(const SchemaNode& node) {
  DLLM_TRY(Bounds count, bounds(node, "minItems", "maxItems"));
  const bool unique = node.json.contains("uniqueItems") && node.json["uniqueItems"] != Json(false);
  if (unique && node.json["uniqueItems"] != Json(true)) return node.at("uniqueItems").bad("it must be true or false");
  if (unique && (count.most == Pattern::kUnbounded || count.most > 1)) return unique_items(node, count);
  DLLM_TRY(const ArrayItems items, array_items(node));
  const auto fixed = static_cast<std::int32_t>(items.first.size());
  const bool others = items.others != nullptr && !(items.others_if_needed && count.least <= fixed);
  if (!others) {
    if (count.least > fixed) return node.at("minItems").bad(fmt::format("there are {} items at most", fixed));
    count.most = count.most == Pattern::kUnbounded ? fixed : std::min(count.most, fixed);
  }
  if (!node.json.contains("contains")) return array_of(items, others, count);
  DLLM_TRY(PatternPtr with, items_with(node, items, others));
  const bool any_count = fixed == 0 && count.least == 0 && count.most == Pattern::kUnbounded;
  return any_count ? with : both(with, array_of(items, others, count));
}

/// `others`: whether there may be more than the first items.
PatternPtr SchemaReader::array_of(const ArrayItems& items, bool others, const Bounds& count) {
  const auto fixed = static_cast<std::int32_t>(items.first.size());
  if (fixed == 0) return others ? json_array(items.others, count.least, count.most) : literal("[]");
  // From the last item to the first: what may follow i items.
  PatternPtr after = sequence({});
  if (others && count.most != fixed)
    after = repeat(sequence({json_comma(), items.others}), std::max(count.least - fixed, 0),
                   count.most == Pattern::kUnbounded ? count.most : std::max(count.most - fixed, 0));
  for (std::int32_t i = fixed; i-- > 0;) {
    const PatternPtr& item = items.first[static_cast<std::size_t>(i)];
    const PatternPtr one = i == 0 ? sequence({item, after}) : sequence({json_comma(), item, after});
    const bool may_stop = i >= count.least, must_stop = count.most != Pattern::kUnbounded && i >= count.most;
    after = must_stop ? sequence({}) : may_stop ? maybe(one) : one;
  }
  return sequence({literal("["), after, literal("]")});
}

/// Lists of which at least `minContains` items fit "contains", and at most `maxContains`. Their order and their number
/// are what array_of() says.
Expected<PatternPtr> SchemaReader::items_with(const SchemaNode& node, const ArrayItems& items, bool others) {
  constexpr std::int64_t kMostContained = 64;
  DLLM_TRY(const auto least, node.integer("minContains", 0, kMostContained));
  DLLM_TRY(const auto most, node.integer("maxContains", 0, kMostContained));
  const std::int64_t from = least.value_or(1);
  std::vector<Json> schemas;
  std::string key;
  if (const Json* tuple = tuple_of(node.json, key)) schemas.assign(tuple->begin(), tuple->end());
  const char* rest = key == "items" && !schemas.empty() ? "additionalItems" : "items";
  if (others) schemas.push_back(node.json.contains(rest) ? node.json[rest] : Json(true));
  const SchemaNode own = node.at("contains");
  Json fails;
  if (most) {
    DLLM_TRY(fails, negated_schema(own, root_, merge_budget_));
  }
  // Any item, those that fit, and those that do not.
  std::vector<PatternPtr> any = items.first, fit, unfit;
  if (others) any.push_back(items.others);
  const auto beside = [&](const Json& item, const Json& schema) -> Expected<PatternPtr> {
    made_.push_back({{"allOf", Json::array({item, schema})}});
    return read({made_.back(), own.path});
  };
  for (const Json& schema : schemas) {
    DLLM_TRY(fit.emplace_back(), beside(schema, own.json));
    if (!most) continue;
    DLLM_TRY(unfit.emplace_back(), beside(schema, fails));
  }
  const PatternPtr item = either(any), one = either(fit), other = most ? either(unfit) : item;
  // From the last to the first: what may follow some item, if so many fitted before.
  const auto more = [](const PatternPtr& next) { return sequence({json_comma(), next}); };
  const std::int64_t last = most ? *most : from;
  if (last < from) return either({});
  PatternPtr after, before;
  for (std::int64_t fitted = last; fitted >= 0; --fitted) {
    before = std::exchange(after, PatternPtr());
    std::vector<PatternPtr> ways;
    if (fitted >= from) ways.push_back(sequence({}));
    if (fitted < last) ways.push_back(sequence({more(one), before}));
    after = sequence({repeat(more(other), 0, Pattern::kUnbounded), either(std::move(ways))});
  }
  std::vector<PatternPtr> starts = {sequence({other, after})};
  if (from == 0) starts.push_back(sequence({}));
  if (last > 0) starts.push_back(sequence({one, before}));
  return sequence({literal("["), either(std::move(starts)), literal("]")});
}

/// No regular language forbids that an arbitrary value occurs twice; with few values it is a list of some of them.
Expected<PatternPtr> SchemaReader::unique_items(const SchemaNode& node, const Bounds& count) {
  if (node.json.contains("contains")) return node.at("contains").bad("it is not supported beside uniqueItems");
  Json item;
  if (node.json.contains("items") && !node.json["items"].is_array() && !node.json.contains("prefixItems")) {
    DLLM_TRY(item, flatten_schema(node.at("items"), root_, merge_budget_));
  }
  const auto values = few_values(item, root_);
  if (!values || values->size() > kMostUnique)
    return node.at("uniqueItems")
        .bad(fmt::format(
                 "it is supported of at most {} values that are listed, or integers between bounds: no automaton "
                 "remembers any value",
                 kMostUnique),
             "give items an \"enum\", or leave it out");
  if (auto checked = read(node.at("items")); !checked) return checked;  // its other keywords
  ListedValues listed({item, node.path + ".items"}, pattern_work_);
  std::vector<PatternPtr> texts;
  for (const auto& value : *values) {
    DLLM_TRY(const bool fits, listed.admit(value));
    if (fits) texts.push_back(json_value(value));
  }
  const auto most = static_cast<std::int32_t>(texts.size());
  if (count.least > most) return node.at("minItems").bad(fmt::format("there are {} different items", most));
  return UniqueLists(texts, count.least, count.most == Pattern::kUnbounded ? most : std::min(count.most, most)).run();
}

Expected<std::vector<std::string>> SchemaReader::required(const SchemaNode& node) const {
  std::vector<std::string> names;
  if (!node.json.contains("required")) return names;
  const SchemaNode own = node.at("required");
  if (!own.json.is_array()) return own.bad("it must be a list of names");
  if (own.json.size() > kMostProperties) return own.bad(fmt::format("more than {} names", kMostProperties));
  for (std::size_t i = 0; i < own.json.size(); ++i) {
    if (!own.json[i].is_string())
      return SchemaNode{own.json[i], fmt::format("{}[{}]", own.path, i)}.bad("it must be a name");
    names.push_back(own.json[i].get<std::string>());
  }
  return names;
}

/// The declared properties, then those that are required without being declared.
Expected<std::vector<SchemaReader::Member>> SchemaReader::members(const SchemaNode& node) {
  const Json none = Json::object();
  const Json& properties = node.json.contains("properties") ? node.json["properties"] : none;
  if (!properties.is_object()) return node.at("properties").bad("it must be an object");
  if (properties.size() > kMostProperties)
    return node.at("properties").bad(fmt::format("more than {} properties", kMostProperties));
  DLLM_TRY(const std::vector<std::string> needed, required(node));
  const std::set<std::string> names(needed.begin(), needed.end());
  std::vector<Member> result;
  std::set<std::string> declared;
  const auto add = [&](const std::string& name, const PatternPtr& value) {
    declared.insert(name);
    const bool never = value->kind == Pattern::Kind::kEither && value->parts.empty();
    if (never && !names.contains(name)) return;
    result.push_back({sequence({literal(Json(name).dump()), json_colon(), value}), names.contains(name)});
  };
  for (const auto& [name, schema] : properties.items()) {
    DLLM_TRY(const PatternPtr value, read({schema, fmt::format("{}.properties.{}", node.path, name)}));
    add(name, value);
  }
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (declared.contains(needed[i])) continue;
    const bool open = !node.json.contains("additionalProperties");
    if (!open && node.json["additionalProperties"] == Json(false))
      return SchemaNode{node.json["required"][i], fmt::format("{}.required[{}]", node.path, i)}.bad(
          "the schema's properties lack it, and it allows no others", "declare it there");
    DLLM_TRY(const PatternPtr value,
             open ? Expected<PatternPtr>(json_any(kOpenLevelsWithin)) : read(node.at("additionalProperties")));
    add(needed[i], value);
  }
  // Patterns would restrict the values, too.
  if (!result.empty() && node.json.contains("patternProperties") && node.json["patternProperties"].is_object())
    for (const auto& [expression, schema] : node.json["patternProperties"].items()) {
      const SchemaNode own{schema, fmt::format("{}.patternProperties.{}", node.path, expression)};
      auto pattern = parse_regex(expression, RegexScope::kSearch);
      if (!pattern) return own.bad(pattern.error().where + ": " + pattern.error().what, pattern.error().hint);
      Products products;
      auto automaton = language(**pattern, {}, pattern_work_, products);  // compile() might leave names out
      if (!automaton) return own.bad(automaton.error().what, automaton.error().hint);
      for (const std::string& name : declared)
        if (automaton->matches(name))
          return own.bad(fmt::format("it matches '{}', and both schemas would hold", name), "leave one out");
    }
  return result;
}

/// The members in their order, separated by commas, each optional one present or not. Tails are shared.
PatternPtr SchemaReader::in_order(const std::vector<Member>& members) {
  PatternPtr first = sequence({}), later = first;  // what follows, if nothing was written yet, or something was
  for (auto one = members.rbegin(); one != members.rend(); ++one) {
    const PatternPtr begins = sequence({one->text, later});
    const PatternPtr follows = sequence({json_comma(), one->text});
    first = one->required ? begins : either({begins, first});
    later = sequence({one->required ? follows : maybe(follows), later});
  }
  return first;
}

Expected<PatternPtr> SchemaReader::object(const SchemaNode& node) {
  DLLM_TRY(const std::vector<Member> all, members(node));
  const bool declares = node.json.contains("properties") && !node.json["properties"].empty();
  const bool only_excludes =
      declares && std::ranges::all_of(node.json["properties"], [](const Json& one) { return one == Json(false); });
  if (all.empty() && (!declares || only_excludes)) return map(node);
  if (node.json.contains("propertyNames") && !any_name(node.json["propertyNames"]))
    return node.at("propertyNames").bad("it is not supported beside declared properties", "leave it out");
  if (node.json.contains("additionalProperties") && !node.json["additionalProperties"].is_boolean() &&
      !node.json["additionalProperties"].is_object())
    return node.at("additionalProperties").bad("it must be true, false or a schema");
  DLLM_TRY(const Bounds count, bounds(node, "minProperties", "maxProperties"));
  // Every choice of optional members must keep within the bounds.
  if (!count.admit(std::ranges::count_if(all, &Member::required)))
    return node.at(node.json.contains("minProperties") ? "minProperties" : "maxProperties")
        .bad("it is not supported unless the required properties are as many", "require more or fewer of them");
  if (!count.admit(static_cast<std::int64_t>(all.size())))
    return node.at("maxProperties").bad("it is not supported next to more properties", "declare fewer");
  return sequence({literal("{"), in_order(all), literal("}")});
}

/// The name of an undeclared property.
Expected<PatternPtr> SchemaReader::map_key(const SchemaNode& node) {
  std::vector<PatternPtr> excluded;
  if (node.json.contains("properties"))
    for (const auto& [name, schema] : node.json["properties"].items()) excluded.push_back(literal(name));
  if (!node.json.contains("propertyNames")) {
    if (excluded.empty()) return json_string();
    const PatternPtr anything = repeat(one_of(CharSet::all()), 0, Pattern::kUnbounded);
    return json_string_of(except(anything, either(std::move(excluded))));
  }
  if (!excluded.empty())
    return node.at("propertyNames").bad("it is not supported next to properties that must be missing");
  const SchemaNode own = node.at("propertyNames");
  if (any_name(own.json)) return json_string();
  const auto names_values = [&](const char* key) { return own.json.contains(key); };
  const bool untyped = own.json.is_object() && implied_types(own.json).empty() &&
                       std::ranges::none_of(std::array{"type", "enum", "const", "$ref"}, names_values);
  if (!untyped && !strings_only(own.json, root_))
    return own.bad("the names of properties are strings", "give it \"type\": \"string\" or an enum of strings");
  if (own.json.contains("type")) return read(own);
  // An applicator would admit values of other types, too.
  made_.push_back(own.json);
  made_.back()["type"] = "string";
  return read({made_.back(), own.path});
}

/// An object without declared properties: any names, or those of one pattern.
Expected<PatternPtr> SchemaReader::map(const SchemaNode& node) {
  DLLM_TRY(const Bounds count, bounds(node, "minProperties", "maxProperties"));
  if (count.least > 1)
    return node.at("minProperties").bad("more than one is not supported: names may occur twice", "require properties");
  DLLM_TRY(PatternPtr key, map_key(node));
  const Json none = Json::object();
  const Json& patterns = node.json.contains("patternProperties") ? node.json["patternProperties"] : none;
  if (!patterns.is_object()) return node.at("patternProperties").bad("it must be an object");
  const bool excludes = node.json.contains("properties") && !node.json["properties"].empty();
  if (!patterns.empty() && excludes)
    return node.at("patternProperties").bad("it is not supported next to properties that must be missing");
  if (patterns.size() > 1 || (!patterns.empty() && node.json.contains("propertyNames")))
    return node.at("patternProperties").bad("several patterns of names are not supported", "give one");
  for (const auto& [expression, schema] : patterns.items()) {
    const SchemaNode own{schema, fmt::format("{}.patternProperties.{}", node.path, expression)};
    auto name = parse_regex(expression, RegexScope::kSearch);
    if (!name) return own.bad(name.error().where + ": " + name.error().what, name.error().hint);
    DLLM_TRY(const PatternPtr value, read(own));
    return json_map(json_string_of(*name), value, count.least, count.most);
  }
  const bool closed = node.json.contains("additionalProperties") && node.json["additionalProperties"] == Json(false);
  if (closed) return count.least == 0 ? literal("{}") : either({});
  if (!node.json.contains("additionalProperties"))
    return json_map(key, json_any(kOpenLevels - 1), count.least, count.most);
  DLLM_TRY(const PatternPtr value, read(node.at("additionalProperties")));
  return json_map(key, value, count.least, count.most);
}

}  // namespace dllm::constrain
