#include "constrain/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json_reader.h"
#include "base/try.h"
#include "constrain/exclusive.h"
#include "constrain/json_text.h"
#include "constrain/regex.h"
#include "constrain/schema_node.h"

namespace dllm::constrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int32_t kMostLength = 100'000;
constexpr std::size_t kMostProperties = 512;
constexpr int kMostNesting = 64;

/// Keywords that decide which values are valid (JSON Schema 2020-12 and earlier drafts, and OpenAPI's `nullable`). What
/// is none of them is an annotation or an extension, which the standard tells a reader to ignore.
constexpr std::string_view kAssertions[] = {"$ref",
                                            "$dynamicRef",
                                            "$recursiveRef",
                                            "type",
                                            "enum",
                                            "const",
                                            "anyOf",
                                            "oneOf",
                                            "allOf",
                                            "not",
                                            "if",
                                            "then",
                                            "else",
                                            "dependencies",
                                            "dependentRequired",
                                            "format",
                                            "dependentSchemas",
                                            "multipleOf",
                                            "minimum",
                                            "maximum",
                                            "minLength",
                                            "exclusiveMinimum",
                                            "exclusiveMaximum",
                                            "maxLength",
                                            "pattern",
                                            "items",
                                            "prefixItems",
                                            "additionalItems",
                                            "minItems",
                                            "maxItems",
                                            "uniqueItems",
                                            "contains",
                                            "minContains",
                                            "maxContains",
                                            "unevaluatedItems",
                                            "properties",
                                            "patternProperties",
                                            "propertyNames",
                                            "required",
                                            "additionalProperties",
                                            "minProperties",
                                            "unevaluatedProperties",
                                            "maxProperties",
                                            "nullable"};

class SchemaReader {
 public:
  explicit SchemaReader(const Json& root) : root_(root) {}

  Expected<PatternPtr> read(const SchemaNode& node) {
    if (++depth_ > kMostNesting) return node.bad(fmt::format("more than {} levels", kMostNesting));
    auto result = any_of(node);
    --depth_;
    return result;
  }

 private:
  Expected<PatternPtr> any_of(const SchemaNode& node) {
    if (!node.json.is_object()) return node.bad("a schema is an object", "write {\"type\": ...}");
    if (node.json.contains("$ref")) return reference(node);
    if (node.json.contains("const")) {
      DLLM_CHECK_OK(only(node, {"const", "type"}));
      DLLM_TRY(const bool fits, node.allows_type_of(node.json["const"]));
      if (!fits) return node.at("const").bad("the value is not of the type that \"type\" names: nothing is valid");
      return json_value(node.json["const"]);
    }
    if (node.json.contains("enum")) return enumeration(node);
    for (const char* key : {"anyOf", "oneOf"})
      if (node.json.contains(key)) return branches(node, key);
    return typed(node);
  }

  /// An error for the first assertion that is none of these.
  Expected<void> only(const SchemaNode& node, const std::set<std::string_view>& known) const {
    for (const auto& [key, value] : node.json.items())
      if (!known.contains(key) && std::ranges::count(kAssertions, key) > 0)
        return node.at(key).bad("the keyword is not supported here", "docs/guide/structure.md lists those that are");
    return {};
  }

  Expected<PatternPtr> reference(const SchemaNode& node) {
    DLLM_CHECK_OK(only(node, {"$ref"}));
    DLLM_TRY(const SchemaNode target, node.resolve(root_));
    const std::string name = node.json["$ref"].get<std::string>();
    if (const auto known = references_.find(name); known != references_.end()) {
      if (!known->second)
        return node.at("$ref").bad("the schema contains itself", "values nested without end are no regular language");
      return known->second;
    }
    references_[name] = nullptr;
    DLLM_TRY(PatternPtr pattern, read(target));
    references_[name] = pattern;
    return pattern;
  }

  Expected<PatternPtr> enumeration(const SchemaNode& node) const {
    DLLM_CHECK_OK(only(node, {"enum", "type"}));
    const Json& values = node.json["enum"];
    if (!values.is_array() || values.empty()) return node.at("enum").bad("it must be a list of values");
    std::vector<PatternPtr> ways;
    for (const Json& value : values) {
      DLLM_TRY(const bool fits, node.allows_type_of(value));
      if (fits) ways.push_back(json_value(value));
    }
    if (ways.empty()) return node.at("enum").bad("no value is of the type that \"type\" names: nothing is valid");
    return either(std::move(ways));
  }

  Expected<PatternPtr> branches(const SchemaNode& node, const char* key) {
    DLLM_CHECK_OK(only(node, {key}));
    const Json& list = node.json[key];
    if (!list.is_array() || list.empty()) return node.at(key).bad("it must be a list of schemas");
    std::vector<PatternPtr> ways;
    for (std::size_t i = 0; i < list.size(); ++i) {
      DLLM_TRY(PatternPtr way, read({list[i], fmt::format("{}.{}[{}]", node.path, key, i)}));
      ways.push_back(std::move(way));
      for (std::size_t j = 0; j < i && key == std::string_view("oneOf"); ++j)
        if (!exclude_each_other(list[i], list[j], root_))
          return node.at(key).bad(fmt::format("a value may fit schemas {} and {}, and must fit one", j, i),
                                  "give anyOf, or different types, or a required property with different constants");
    }
    return either(std::move(ways));
  }

  Expected<PatternPtr> typed(const SchemaNode& node) {
    DLLM_CHECK_OK(only(node, kTyped));
    DLLM_TRY(const std::vector<std::string> types, node.types());
    // A bound on numbers holds for integers only: as an expression it is no short one for fractions.
    if (std::ranges::count(types, "number") > 0) DLLM_CHECK_OK(only(node, without_number_bounds()));
    std::vector<PatternPtr> ways;
    for (const std::string& type : types) {
      DLLM_TRY(PatternPtr way, of_type(node, type));
      ways.push_back(std::move(way));
    }
    return either(std::move(ways));
  }

  /// Those that a schema with types may have. Each speaks of one type, and says nothing of values of the others.
  static inline const std::set<std::string_view> kTyped = {"type",
                                                           "minLength",
                                                           "maxLength",
                                                           "pattern",
                                                           "minimum",
                                                           "maximum",
                                                           "exclusiveMinimum",
                                                           "exclusiveMaximum",
                                                           "items",
                                                           "minItems",
                                                           "maxItems",
                                                           "properties",
                                                           "required",
                                                           "additionalProperties"};

  static std::set<std::string_view> without_number_bounds() {
    std::set<std::string_view> known = kTyped;
    for (const char* bound : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) known.erase(bound);
    return known;
  }

  Expected<PatternPtr> of_type(const SchemaNode& node, const std::string& type) {
    if (type == "string") return string(node);
    if (type == "integer") return integer(node);
    if (type == "number") return json_number();
    if (type == "boolean") return json_boolean();
    if (type == "null") return literal("null");
    if (type == "array") return array(node);
    return object(node);
  }

  struct Bounds {
    std::int32_t least = 0, most = Pattern::kUnbounded;
  };

  static Expected<Bounds> bounds(const SchemaNode& node, const char* least, const char* most) {
    DLLM_TRY(const auto from, node.integer(least, 0, kMostLength));
    DLLM_TRY(const auto to, node.integer(most, 0, kMostLength));
    if (from && to && *to < *from) return node.at(most).bad(fmt::format("it is less than {}", least));
    return Bounds{static_cast<std::int32_t>(from.value_or(0)),
                  static_cast<std::int32_t>(to.value_or(Pattern::kUnbounded))};
  }

  static Expected<PatternPtr> string(const SchemaNode& node) {
    DLLM_TRY(const Bounds length, bounds(node, "minLength", "maxLength"));
    if (!node.json.contains("pattern")) return json_string(length.least, length.most);
    const SchemaNode own = node.at("pattern");
    if (!own.json.is_string()) return own.bad("it must be a text");
    for (const char* key : {"minLength", "maxLength"})
      if (node.json.contains(key))
        return node.at(key).bad("it is not supported next to a pattern", "write it as {m,n}");
    auto content = parse_regex(own.json.get_ref<const std::string&>(), RegexScope::kSearch);
    if (!content) return own.bad(content.error().where + ": " + content.error().what, content.error().hint);
    return json_string_of(*content);
  }

  static Expected<PatternPtr> integer(const SchemaNode& node) {
    DLLM_TRY(const auto low, node.least_integer());
    DLLM_TRY(const auto high, node.greatest_integer());
    if (low && high && *low > *high) return node.bad("no integer is within the bounds");
    return json_integer(low, high);
  }

  Expected<PatternPtr> array(const SchemaNode& node) {
    DLLM_TRY(const Bounds count, bounds(node, "minItems", "maxItems"));
    if (!node.json.contains("items")) return json_array(json_any(kOpenLevels - 1), count.least, count.most);
    DLLM_TRY(const PatternPtr item, read(node.at("items")));
    return json_array(item, count.least, count.most);
  }

  Expected<std::set<std::string>> required(const SchemaNode& node, const Json& properties) const {
    std::set<std::string> names;
    if (!node.json.contains("required")) return names;
    const SchemaNode own = node.at("required");
    if (!own.json.is_array()) return own.bad("it must be a list of names");
    for (std::size_t i = 0; i < own.json.size(); ++i) {
      const SchemaNode name{own.json[i], fmt::format("{}[{}]", own.path, i)};
      if (!name.json.is_string()) return name.bad("it must be a name");
      if (!properties.contains(name.json.get<std::string>()))
        return name.bad("the schema's properties lack it", "declare it there");
      names.insert(name.json.get<std::string>());
    }
    return names;
  }

  Expected<PatternPtr> object(const SchemaNode& node) {
    const bool more = !node.json.contains("additionalProperties") || node.json["additionalProperties"] == Json(true);
    if (!more && node.json["additionalProperties"] != Json(false))
      return node.at("additionalProperties").bad("it must be true or false", "name the properties");
    const Json none = Json::object();
    const Json& properties = node.json.contains("properties") ? node.json["properties"] : none;
    if (!properties.is_object()) return node.at("properties").bad("it must be an object");
    if (properties.size() > kMostProperties)
      return node.at("properties").bad(fmt::format("more than {} properties", kMostProperties));
    DLLM_TRY(const auto needed, required(node, properties));
    if (properties.empty()) return more ? json_any_object(kOpenLevels) : literal("{}");
    std::vector<Member> members;
    for (const auto& [name, schema] : properties.items()) {
      DLLM_TRY(const PatternPtr value, read({schema, fmt::format("{}.properties.{}", node.path, name)}));
      members.push_back({sequence({literal(Json(name).dump()), json_colon(), value}), needed.contains(name)});
    }
    return sequence({literal("{"), in_order(members), literal("}")});
  }

  struct Member {
    PatternPtr text;
    bool required;
  };

  /// The members in their order, separated by commas, each optional one present or not. Tails are shared.
  static PatternPtr in_order(const std::vector<Member>& members) {
    PatternPtr first = sequence({}), later = first;  // what follows, if nothing was written yet, or something was
    for (auto one = members.rbegin(); one != members.rend(); ++one) {
      const PatternPtr begins = sequence({one->text, later});
      const PatternPtr follows = sequence({json_comma(), one->text});
      first = one->required ? begins : either({begins, first});
      later = sequence({one->required ? follows : maybe(follows), later});
    }
    return first;
  }

  const Json& root_;
  std::map<std::string, PatternPtr> references_;  ///< null: being read
  int depth_ = 0;
};

}  // namespace

Expected<PatternPtr> schema_pattern(const Json& schema) { return SchemaReader(schema).read({schema, "$"}); }

Expected<PatternPtr> parse_schema(std::string_view text) {
  DLLM_TRY(const Json schema, read_json<Json>(text, {.code = ErrorCode::kUsage, .root = "$"}));
  return schema_pattern(schema);
}

}  // namespace dllm::constrain
