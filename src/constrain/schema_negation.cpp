#include "constrain/schema_negation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "constrain/schema_keywords.h"
#include "constrain/schema_merge.h"

namespace dllm::constrain {
namespace {

using JsonSchema = nlohmann::ordered_json;

constexpr int kDeepestNegation = 64;

constexpr std::string_view kConditions[] = {"not", "if", "dependentRequired", "dependentSchemas", "dependencies"};

JsonSchema any_of_these(JsonSchema ways) {
  if (ways.empty()) return JsonSchema(false);
  return ways.size() == 1 ? ways[0] : JsonSchema{{"anyOf", std::move(ways)}};
}

JsonSchema both_of(JsonSchema a, JsonSchema b) { return {{"allOf", JsonSchema::array({std::move(a), std::move(b)})}}; }

JsonSchema without_property(const std::string& name) { return {{"properties", {{name, false}}}}; }

JsonSchema of_type(const char* type, JsonSchema schema) {
  schema["type"] = type;
  return schema;
}

/// How a bound is negated: values beyond it, of the type to which it applies.
struct BoundNegation {
  std::string_view bound;
  const char* negated;
  const char* type;
  int more;  ///< is added to the bound, a count
};

constexpr BoundNegation kBoundNegations[] = {
    {"minimum", "exclusiveMaximum", "number", 0},
    {"maximum", "exclusiveMinimum", "number", 0},
    {"exclusiveMinimum", "maximum", "number", 0},
    {"exclusiveMaximum", "minimum", "number", 0},
    {"minLength", "maxLength", "string", -1},
    {"maxLength", "minLength", "string", 1},
    {"minItems", "maxItems", "array", -1},
    {"maxItems", "minItems", "array", 1},
    {"minProperties", "maxProperties", "object", -1},
    {"maxProperties", "minProperties", "object", 1},
};

class Negation {
 public:
  Negation(const JsonSchema& root, std::int64_t& budget) : root_(root), budget_(budget) {}

  /// A schema that only values fit which do not fit this one: one of its keywords does not hold.
  Expected<JsonSchema> of(const SchemaNode& node) {
    if (--budget_ < 0 || ++depth_ > kDeepestNegation)
      return node.bad("too many schemas within \"not\" or \"if\"", "write what must hold");
    if (node.json.is_boolean()) {
      --depth_;
      return JsonSchema(node.json == JsonSchema(false));
    }
    if (!node.json.is_object()) return node.bad("a schema is an object, true or false", "write {\"type\": ...}");
    JsonSchema ways = JsonSchema::array();
    for (const auto& [key, value] : node.json.items()) {
      if (!restricts(key)) continue;
      DLLM_CHECK_OK(add(node, key, ways));
    }
    --depth_;
    return any_of_these(std::move(ways));
  }

  Expected<JsonSchema> conditional(const SchemaNode& node) {
    const auto part = [&](const char* key) { return node.json.contains(key) ? node.json[key] : JsonSchema(true); };
    const JsonSchema condition = part("if"), then = part("then"), otherwise = part("else");
    DLLM_CHECK_OK(pay(node, condition));
    if (then == JsonSchema(true) && otherwise == JsonSchema(true)) return JsonSchema(true);
    DLLM_CHECK_OK(pay(node, then));
    DLLM_CHECK_OK(pay(node, otherwise));
    DLLM_TRY(JsonSchema fails, of(node.at("if")));
    return JsonSchema{{"anyOf", JsonSchema::array({both_of(condition, then), both_of(std::move(fails), otherwise)})}};
  }

  /// The property is missing, or what depends on it holds.
  Expected<std::vector<JsonSchema>> dependent(const SchemaNode& node) {
    std::vector<JsonSchema> all;
    if (!node.json.is_object()) return node.bad("it must be an object");
    for (const auto& [name, value] : node.json.items()) {
      DLLM_CHECK_OK(pay(node, value));
      JsonSchema needed = value;
      if (value.is_array()) {
        for (std::size_t i = 0; i < value.size(); ++i)
          if (!value[i].is_string())
            return SchemaNode{value[i], fmt::format("{}.{}[{}]", node.path, name, i)}.bad("it must be a name");
        needed = {{"required", value}};
      }
      all.push_back({{"anyOf", JsonSchema::array({std::move(needed), without_property(name)})}});
    }
    return all;
  }

 private:
  Expected<void> pay(const SchemaNode& node, const JsonSchema& copied) {
    budget_ -= count_values(copied);
    if (budget_ < 0) return node.bad("there are too many schemas that must all hold", "write their keywords in one");
    return {};
  }

  /// Appends the ways in which a keyword does not hold.
  Expected<void> add(const SchemaNode& node, const std::string& key, JsonSchema& ways) {
    const SchemaNode own = node.at(key);
    DLLM_CHECK_OK(pay(own, own.json.is_object() ? JsonSchema() : own.json));
    const auto* bound = std::ranges::find(kBoundNegations, key, &BoundNegation::bound);
    if (bound != std::ranges::end(kBoundNegations)) return add_bound(own, *bound, ways);
    if (key == "type") return add_types(node, ways);
    if (key == "const" || key == "enum") {
      if (key == "enum" && !own.json.is_array()) return own.bad("it must be a list of values");
      ways.push_back({{"not", {{"enum", key == "enum" ? own.json : JsonSchema::array({own.json})}}}});
      return {};
    }
    if (key == "pattern") {
      if (!own.json.is_string()) return own.bad("it must be a text");
      ways.push_back(of_type("string", {{"pattern", without_pattern(own.json.get<std::string>())}}));
      return {};
    }
    if (key == "required" || key == "properties" || key == "dependentRequired" || key == "dependentSchemas" ||
        key == "dependencies")
      return add_properties(own, key, ways);
    if (key == "items" || key == "contains") return add_items(node, key, ways);
    if (key == "minContains" || key == "maxContains" || key == "then" || key == "else") return {};  // with another
    return add_schemas(node, key, ways);
  }

  Expected<void> add_bound(const SchemaNode& own, const BoundNegation& bound, JsonSchema& ways) {
    if (!own.json.is_number()) return own.bad("it must be a number");
    JsonSchema beyond = own.json;
    if (bound.more != 0) {
      constexpr std::int64_t kFar = std::int64_t{1} << 53U;
      const double count = own.json.get<double>();
      if (count < 0 || count > static_cast<double>(kFar)) return own.bad("it must be an integer from 0");
      beyond = static_cast<std::int64_t>(count) + bound.more;
      if (beyond < 0) return {};
    }
    ways.push_back(of_type(bound.type, {{bound.negated, std::move(beyond)}}));
    return {};
  }

  /// The other types. Integers are numbers: without them, the rest of the numbers are left out too.
  Expected<void> add_types(const SchemaNode& node, JsonSchema& ways) {
    DLLM_TRY(const std::vector<std::string> named, node.types());
    JsonSchema others = JsonSchema::array();
    const bool numbers = std::ranges::count(named, "number") + std::ranges::count(named, "integer") > 0;
    for (const std::string_view type : schema_types())
      if (type != "integer" && std::ranges::count(named, type) == 0 && !(numbers && type == "number"))
        others.push_back(type);
    if (!others.empty()) ways.push_back({{"type", std::move(others)}});
    return {};
  }

  Expected<void> add_properties(const SchemaNode& own, const std::string& key, JsonSchema& ways) {
    const auto lacks = [&](const JsonSchema& name, JsonSchema schema) -> Expected<void> {
      DLLM_CHECK_OK(pay(own, name));
      DLLM_CHECK_OK(pay(own, schema));
      if (!name.is_string()) return own.bad("it must be a list of names");
      schema["properties"] = {{name.get<std::string>(), false}};
      ways.push_back(of_type("object", std::move(schema)));
      return {};
    };
    if (key == "required") {
      if (!own.json.is_array()) return own.bad("it must be a list of names");
      for (const JsonSchema& name : own.json) DLLM_CHECK_OK(lacks(name, JsonSchema::object()));
      return {};
    }
    if (!own.json.is_object()) return own.bad("it must be an object");
    for (const auto& [name, value] : own.json.items()) {
      DLLM_CHECK_OK(pay(own, JsonSchema(name)));
      const JsonSchema has = {{"required", JsonSchema::array({name})}};
      if (value.is_array() && key != "properties") {
        for (const JsonSchema& other : value) DLLM_CHECK_OK(lacks(other, has));
        continue;
      }
      DLLM_TRY(JsonSchema other, of({value, own.path + "." + name}));
      JsonSchema way = has;
      if (key == "properties")
        way["properties"] = {{name, std::move(other)}};
      else
        way["allOf"] = JsonSchema::array({std::move(other)});
      ways.push_back(of_type("object", std::move(way)));
    }
    return {};
  }

  /// Of items, one does not fit; of what must be contained, fewer do, or more.
  Expected<void> add_items(const SchemaNode& node, const std::string& key, JsonSchema& ways) {
    const SchemaNode own = node.at(key);
    if (own.json.is_array()) return own.bad("a list of items is not supported within \"not\" or \"if\"");
    if (key == "items") {
      if (node.json.contains("prefixItems")) return own.bad("it is not supported here beside prefixItems");
      DLLM_TRY(JsonSchema other, of(own));
      ways.push_back(of_type("array", {{"contains", std::move(other)}}));
      return {};
    }
    DLLM_CHECK_OK(pay(own, own.json));
    constexpr std::int64_t kMostContained = 100'000;
    DLLM_TRY(const auto least, node.integer("minContains", 0, kMostContained));
    DLLM_TRY(const auto most, node.integer("maxContains", 0, kMostContained));
    if (const std::int64_t fewer = least.value_or(1) - 1; fewer >= 0)
      ways.push_back(of_type("array", {{"contains", own.json}, {"minContains", 0}, {"maxContains", fewer}}));
    if (most) ways.push_back(of_type("array", {{"contains", own.json}, {"minContains", *most + 1}}));
    return {};
  }

  Expected<void> add_schemas(const SchemaNode& node, const std::string& key, JsonSchema& ways) {
    const SchemaNode own = node.at(key);
    if (key == "$ref") {
      DLLM_TRY(const SchemaNode target, node.resolve(root_));
      DLLM_TRY(ways.emplace_back(), of(target));
      return {};
    }
    if (key == "not") {
      DLLM_CHECK_OK(pay(own, own.json));
      ways.push_back(own.json);
      return {};
    }
    if (key == "if") {
      for (const char* then : {"then", "else"}) {
        if (!node.json.contains(then)) continue;
        DLLM_TRY(JsonSchema fails, of(node.at(then)));
        JsonSchema holds = own.json;
        DLLM_CHECK_OK(pay(own, holds));
        if (then == std::string_view("else")) {
          DLLM_TRY(holds, of(own));
        }
        ways.push_back(both_of(std::move(holds), std::move(fails)));
      }
      return {};
    }
    if (key != "allOf" && key != "anyOf" && key != "oneOf")
      return own.bad("the keyword is not supported within \"not\" or \"if\"", "write what must hold");
    if (!own.json.is_array() || own.json.empty()) return own.bad("it must be a list of schemas");
    JsonSchema all = JsonSchema::array();
    for (std::size_t i = 0; i < own.json.size(); ++i) {
      DLLM_TRY(JsonSchema other, of({own.json[i], fmt::format("{}[{}]", own.path, i)}));
      (key == "allOf" ? ways : all).push_back(std::move(other));
    }
    if (key != "allOf") ways.push_back({{"allOf", std::move(all)}});
    return {};
  }

  const JsonSchema& root_;
  std::int64_t& budget_;
  int depth_ = 0;
};

}  // namespace

bool is_condition(std::string_view key) {
  return std::ranges::count(kConditions, key) > 0 || key == "then" || key == "else";
}

bool is_excluded_list(const JsonSchema& negated) {
  return negated.is_object() && negated.size() == 1 && negated.contains("enum") && negated["enum"].is_array();
}

bool has_conditions(const JsonSchema& schema) {
  return std::ranges::any_of(schema.items(), [](const auto& member) {
    return is_condition(member.key()) && !(member.key() == "not" && is_excluded_list(member.value()));
  });
}

Expected<JsonSchema> negated_schema(const SchemaNode& node, const JsonSchema& root, std::int64_t& budget) {
  return Negation(root, budget).of(node);
}

Expected<std::vector<JsonSchema>> say_conditions(const SchemaNode& node, const JsonSchema& root, std::int64_t& budget) {
  Negation negation(root, budget);
  std::vector<JsonSchema> all;
  if (node.json.contains("not") && !is_excluded_list(node.json["not"])) {
    DLLM_TRY(all.emplace_back(), negation.of(node.at("not")));
  }
  if (node.json.contains("if")) {
    DLLM_TRY(all.emplace_back(), negation.conditional(node));
  }
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    if (!node.json.contains(key)) continue;
    DLLM_TRY(std::vector<JsonSchema> more, negation.dependent(node.at(key)));
    std::ranges::move(more, std::back_inserter(all));
  }
  return all;
}

}  // namespace dllm::constrain
