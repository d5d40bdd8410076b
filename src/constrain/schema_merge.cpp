#include "constrain/schema_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/try.h"
#include "constrain/regex.h"
#include "constrain/schema_keywords.h"
#include "constrain/schema_negation.h"
#include "constrain/value_set.h"

namespace dllm::constrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDeepestMerge = 64;
constexpr std::int64_t kLargestMultiple = 999'999'999'999'999;

Json all_of(const Json& a, const Json& b) { return Json{{"allOf", Json::array({a, b})}}; }

/// Between several patterns in one text: no UTF-8 has these bytes.
constexpr char kMatches = '\xFF', kMatchesNot = '\xFE';

enum class Rule {
  kSame,     ///< one keyword says both only if they are the same
  kLarger,   ///< the larger number
  kSmaller,  ///< the smaller number
  kBoth,     ///< a schema: both hold
};

Rule rule_of(std::string_view key) {
  static constexpr std::string_view kLower[] = {"minimum",  "exclusiveMinimum", "minLength",
                                                "minItems", "minProperties",    "minContains"};
  static constexpr std::string_view kUpper[] = {"maximum",  "exclusiveMaximum", "maxLength",
                                                "maxItems", "maxProperties",    "maxContains"};
  if (std::ranges::count(kLower, key) > 0) return Rule::kLarger;
  if (std::ranges::count(kUpper, key) > 0) return Rule::kSmaller;
  return key == "items" || key == "propertyNames" ? Rule::kBoth : Rule::kSame;
}

class Merge {
 public:
  Merge(const Json& root, std::int64_t& budget) : root_(root), budget_(budget) {}

  /// As flatten_schema().
  Expected<Json> flat(const SchemaNode& node) {
    if (node.json.is_boolean()) return node.json;
    if (!node.json.is_object()) return node.bad("a schema is an object, true or false", "write {\"type\": ...}");
    if (node.json.contains("$ref")) {
      DLLM_TRY(const SchemaNode target, node.resolve(root_));
      const Json rest = keywords_beside(node.json, "$ref");
      return of({rest, node.path}, target);
    }
    Json all = plain_keywords(node.json);
    const bool listed = all.contains("enum") && all["enum"].is_array();
    if (listed && all.contains("const") && !ValueSet(all["enum"]).contains(all["const"])) return Json(false);
    if (node.json.contains("allOf")) {
      const SchemaNode list = node.at("allOf");
      if (!list.json.is_array() || list.json.empty()) return list.bad("it must be a list of schemas");
      for (std::size_t i = 0; i < list.json.size(); ++i) {
        DLLM_TRY(all, of({all, node.path}, {list.json[i], fmt::format("{}[{}]", list.path, i)}));
      }
    }
    if (has_conditions(node.json)) {
      DLLM_TRY(const std::vector<Json> conditions, say_conditions(node, root_, budget_));
      for (const Json& one : conditions) {
        DLLM_TRY(all, of({all, node.path}, {one, node.path}));
      }
    }
    if (!leave_out(all)) return Json(false);
    return all;
  }

 private:
  /// The keywords without those that flat() resolves, and without those that mean nothing alone.
  static Json plain_keywords(const Json& schema) {
    Json plain = Json::object();
    const bool contains = schema.contains("contains");
    for (const auto& [name, value] : schema.items()) {
      const bool excluded = name == "not" && is_excluded_list(value);
      const bool alone = !contains && (name == "minContains" || name == "maxContains");
      if (restricts(name) && name != "allOf" && (excluded || !is_condition(name)) && !alone) plain[name] = value;
    }
    if (contains && !plain.contains("minContains")) plain["minContains"] = 1;
    return plain;
  }

  /// Leaves the values of "not" out of those of "enum" and "const". False: none is left.
  static bool leave_out(Json& schema) {
    if (!schema.is_object() || !schema.contains("not") || (!schema.contains("enum") && !schema.contains("const")))
      return true;
    const ValueSet excluded(schema["not"]["enum"]);
    const bool one = schema.contains("const");
    if (one && excluded.contains(schema["const"])) return false;
    if (!one && schema["enum"].is_array()) {
      Json left = Json::array();
      for (const Json& value : schema["enum"])
        if (!excluded.contains(value)) left.push_back(value);
      if (left.empty() && !schema["enum"].empty()) return false;
      schema["enum"] = std::move(left);
    }
    schema.erase("not");
    return true;
  }

  /// Whether "type" admits one of the values of "enum" or "const".
  static bool typed(const Json& schema) {
    const auto admits = [&](const Json& value) {
      const auto admitted = SchemaNode{schema, ""}.type_admits(value);
      return !admitted || *admitted;  // an error is found when the schema is read
    };
    if (schema.contains("const")) return admits(schema["const"]);
    if (!schema.contains("enum") || !schema["enum"].is_array() || schema["enum"].empty()) return true;
    return std::ranges::any_of(schema["enum"], admits);
  }

  Expected<Json> of(const SchemaNode& first, const SchemaNode& second) {
    if (++depth_ > kDeepestMerge)
      return second.bad(fmt::format("more than {} schemas within each other", kDeepestMerge));
    DLLM_TRY(const Json a, flat(first));
    DLLM_TRY(const Json b, flat(second));
    --depth_;
    budget_ -= count_values(a) + count_values(b);
    if (budget_ < 0) return second.bad("there are too many schemas that must all hold", "write their keywords in one");
    if (a == Json(false) || b == Json(true)) return a;
    if (b == Json(false) || a == Json(true)) return b;
    return keywords({a, first.path}, {b, second.path});
  }

  Expected<Json> keywords(const SchemaNode& a, const SchemaNode& b) {
    DLLM_CHECK_OK(check_lists(a, b));
    Json result = a.json;
    for (const auto& [key, value] : b.json.items()) {
      if (key == "const" || key == "enum" || key == "properties" || key == "additionalProperties") continue;
      if (key == "anyOf" && result.contains(key)) continue;
      if (!result.contains(key)) {
        result[key] = value;
        continue;
      }
      DLLM_TRY(result[key], both(key, result[key], b.at(key)));
      if (result[key].is_null()) return Json(false);
    }
    DLLM_CHECK_OK(properties(result, a, b));
    if (!values(result, a.json, b.json) || !leave_out(result) || !typed(result)) return Json(false);
    if (a.json.contains("anyOf") && b.json.contains("anyOf")) {
      DLLM_TRY(result["anyOf"], alternatives(result, b.at("anyOf")));
      if (result["anyOf"].empty()) return Json(false);
    }
    return result;
  }

  /// Which items or properties of the one a keyword of the other restricts depends on the rest of it.
  static Expected<void> check_lists(const SchemaNode& a, const SchemaNode& b) {
    const auto tuple = [](const Json& schema) {
      return schema.contains("prefixItems") || (schema.contains("items") && schema["items"].is_array());
    };
    const auto any = [](const Json& schema) { return schema.contains("items") || schema.contains("prefixItems"); };
    if ((tuple(a.json) && any(b.json)) || (tuple(b.json) && any(a.json)))
      return b.bad("a list of items beside other items is not supported", "write the items in one schema");
    const auto named = [](const Json& schema) {
      return schema.contains("properties") || schema.contains("additionalProperties") ||
             schema.contains("patternProperties");
    };
    if ((a.json.contains("patternProperties") && named(b.json)) ||
        (b.json.contains("patternProperties") && named(a.json)))
      return b.bad("patternProperties beside properties of another schema are not supported",
                   "write the properties in one schema");
    return {};
  }

  /// Null: nothing fits.
  Expected<Json> both(const std::string& key, const Json& first, const SchemaNode& second) {
    if (key == "type") return types(first, second.json);
    if (key == "required" && first.is_array() && second.json.is_array()) {
      ValueSet seen;
      Json names = Json::array();
      for (const Json* list : {&first, &second.json})
        for (const Json& name : *list)
          if (seen.insert(name)) names.push_back(name);
      return names;
    }
    if (equal_values(first, second.json)) return first;
    if (key == "not") {
      Json excluded = first;
      for (const Json& value : second.json["enum"]) excluded["enum"].push_back(value);
      return excluded;
    }
    if (key == "uniqueItems" && first.is_boolean() && second.json.is_boolean()) return Json(true);
    if (key == "multipleOf") return multiple(first, second);
    if (key == "pattern") return patterns(first, second);
    if (key == "oneOf") return second.bad("two lists of oneOf are not supported", "write one list, or anyOf");
    switch (rule_of(key)) {
      case Rule::kBoth:
        return all_of(first, second.json);
      case Rule::kLarger:
      case Rule::kSmaller:
        if (!first.is_number() || !second.json.is_number()) return second.bad("it must be a number");
        return (first < second.json) == (rule_of(key) == Rule::kLarger) ? second.json : first;
      case Rule::kSame:
        break;
    }
    return second.bad("two schemas that must both hold have different ones", "write one that says both");
  }

  /// One text of all expressions: each may match at another place.
  static Expected<Json> patterns(const Json& first, const SchemaNode& second) {
    std::string all;
    for (const Json* one : {&first, &second.json}) {
      if (!one->is_string()) return second.bad("it must be a text");
      for (const StringPattern& part : string_patterns(one->get_ref<const std::string&>())) {
        const auto parsed = one == &first ? PatternPtr() : parse_regex(part.expression, RegexScope::kSearch);
        if (!parsed) return second.bad(parsed.error().where + ": " + parsed.error().what, parsed.error().hint);
        all += (part.negated ? kMatchesNot : kMatches) + part.expression;
      }
    }
    return Json(all);
  }

  static Expected<Json> types(const Json& first, const Json& second) {
    const auto list = [](const Json& type) { return type.is_array() ? type : Json::array({type}); };
    const Json a = list(first), b = list(second);
    const ValueSet in_a(a), in_b(b);
    ValueSet taken;
    Json common = Json::array();
    const auto take = [&](const Json& types, const ValueSet& others) {
      for (const Json& type : types)
        if ((others.contains(type) || (type == "integer" && others.contains("number"))) && taken.insert(type))
          common.push_back(type);
    };
    take(a, in_b);
    take(b, in_a);
    return common.empty() ? Json() : common.size() == 1 ? common[0] : common;
  }

  static Expected<Json> multiple(const Json& first, const SchemaNode& second) {
    const auto whole = [](const Json& value) {
      return value.is_number_integer() && value > 0 && value <= kLargestMultiple;
    };
    if (!whole(first) || !whole(second.json)) return second.bad("two different multiples must be positive integers");
    const auto a = first.get<std::int64_t>(), b = second.json.get<std::int64_t>();
    const std::int64_t part = b / std::gcd(a, b);
    if (part > kLargestMultiple / a) return second.bad("the least common multiple has more than 15 digits");
    return Json(a * part);
  }

  /// Every pair of alternatives that some value may fit, beside the other keywords of `schema`.
  Expected<Json> alternatives(const Json& schema, const SchemaNode& second) {
    constexpr std::size_t kMostPairs = 256;
    const Json& first = schema["anyOf"];
    if (!first.is_array() || !second.json.is_array()) return second.bad("it must be a list of schemas");
    if (first.size() * second.json.size() > kMostPairs)
      return second.bad(fmt::format("more than {} pairs of alternatives", kMostPairs));
    const Json rest = keywords_beside(schema, "anyOf");
    Json pairs = Json::array();
    for (const Json& a : first)
      for (const Json& b : second.json) {
        DLLM_TRY(Json pair, of({a, second.path}, {b, second.path}));
        DLLM_TRY(Json beside, of({pair, second.path}, {rest, second.path}));
        DLLM_TRY(const bool possible, may_hold(beside, second.path));
        if (possible) pairs.push_back(std::move(pair));
      }
    return pairs;
  }

  /// Whether a flattened schema may fit a value, as far as its required properties tell.
  Expected<bool> may_hold(const Json& schema, const std::string& path) {
    if (!schema.is_object()) return schema == Json(true);
    if (!schema.contains("properties") || !schema.contains("required") || schema.value("type", Json()) != "object")
      return true;
    const Json& properties = schema["properties"];
    for (const Json& name : schema["required"]) {
      const auto own = name.is_string() ? properties.find(name.get_ref<const std::string&>()) : properties.end();
      if (own == properties.end()) continue;
      DLLM_TRY(const Json value, flat({*own, path}));
      if (value == Json(false)) return false;
    }
    return true;
  }

  /// A property that only one schema names is an additional one to the other.
  static Expected<void> properties(Json& result, const SchemaNode& a, const SchemaNode& b) {
    const Json none = Json::object();
    const auto named = [&](const SchemaNode& node) -> const Json& {
      return node.json.contains("properties") ? node.json["properties"] : none;
    };
    const Json &of_a = named(a), &of_b = named(b);
    for (const SchemaNode* node : {&a, &b})
      if (!named(*node).is_object()) return node->at("properties").bad("it must be an object");
    const auto restricted = [](const Json& schema, const SchemaNode& other) {
      return schema == Json(false) || !other.json.contains("additionalProperties")
                 ? schema
                 : all_of(schema, other.json["additionalProperties"]);
    };
    const auto index = [](const Json& properties) {
      std::map<std::string_view, const Json*> schemas;
      for (const auto& one : properties.get_ref<const Json::object_t&>()) schemas[one.first] = &one.second;
      return schemas;
    };
    const auto in_a = index(of_a), in_b = index(of_b);
    Json::object_t merged;  // a vector: its operator[] would compare all names each time
    for (const auto& [name, schema] : of_a.get_ref<const Json::object_t&>()) {
      const auto other = in_b.find(name);
      merged.push_back({name, other != in_b.end() ? all_of(schema, *other->second) : restricted(schema, b)});
    }
    for (const auto& [name, schema] : of_b.get_ref<const Json::object_t&>())
      if (!in_a.contains(name)) merged.push_back({name, restricted(schema, a)});
    if (!merged.empty()) result["properties"] = std::move(merged);
    if (!b.json.contains("additionalProperties")) return {};
    const Json& others = b.json["additionalProperties"];
    Json& own = result["additionalProperties"];
    own = own.is_null() || own == Json(true)            ? others
          : own == Json(false) || others == Json(false) ? Json(false)
          : others == Json(true)                        ? own
                                                        : all_of(own, others);
    return {};
  }

  /// Constants and lists of values. False: none is left.
  static bool values(Json& result, const Json& a, const Json& b) {
    const auto list = [](const Json& schema) {
      return schema.contains("const")                               ? Json::array({schema["const"]})
             : schema.contains("enum") && schema["enum"].is_array() ? schema["enum"]
                                                                    : Json();
    };
    const Json of_a = list(a), of_b = list(b);
    if (of_b.is_null()) return true;
    const ValueSet in_a(of_a);
    Json common = Json::array();
    for (const Json& value : of_b)
      if (of_a.is_null() || in_a.contains(value)) common.push_back(value);
    result.erase("const");
    result["enum"] = common;
    return !common.empty();
  }

  const Json& root_;
  std::int64_t& budget_;
  int depth_ = 0;
};

}  // namespace

Expected<Json> flatten_schema(const SchemaNode& node, const Json& root, std::int64_t& budget) {
  return Merge(root, budget).flat(node);
}

bool needs_flattening(const Json& schema) {
  return schema.contains("$ref") || schema.contains("allOf") || has_conditions(schema) ||
         (schema.contains("not") && (schema.contains("enum") || schema.contains("const")));
}

std::int64_t count_values(const Json& value) {
  constexpr std::size_t kText = 32;  // bytes that cost as much as a value
  std::int64_t count = 1;
  if (value.is_string()) count += static_cast<std::int64_t>(value.get_ref<const std::string&>().size() / kText);
  if (value.is_array())
    for (const Json& one : value) count += count_values(one);
  if (value.is_object())
    for (const auto& [name, one] : value.get_ref<const Json::object_t&>())
      count += static_cast<std::int64_t>(name.size() / kText) + count_values(one);
  return count;
}

std::vector<StringPattern> string_patterns(std::string_view text) {
  if (!text.starts_with(kMatches) && !text.starts_with(kMatchesNot)) return {{std::string(text), false}};
  std::vector<StringPattern> all;
  for (std::size_t from = 0; from < text.size();) {
    const char separators[] = {kMatches, kMatchesNot};
    const std::size_t end = std::min(text.find_first_of(std::string_view(separators, 2), from + 1), text.size());
    all.push_back({std::string(text.substr(from + 1, end - from - 1)), text[from] == kMatchesNot});
    from = end;
  }
  return all;
}

std::string without_pattern(std::string_view text) { return kMatchesNot + std::string(text); }

bool restricts_beside(const Json& schema, std::string_view key) {
  return std::ranges::any_of(schema.items(),
                             [&](const auto& member) { return member.key() != key && restricts(member.key()); });
}

Json keywords_beside(const Json& schema, std::string_view key) {
  Json rest = Json::object();
  for (const auto& [name, value] : schema.items())
    if (name != key && restricts(name)) rest[name] = value;
  return rest;
}

}  // namespace dllm::constrain
