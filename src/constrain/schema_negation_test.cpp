#include "constrain/schema_negation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "constrain/json_schema.h"
#include "constrain/testing/schema_dfa.h"
#include "constrain/testing/walks.h"

namespace dllm::constrain {
namespace {

constexpr const char* kConditionals[] = {
    R"({"type": "string", "not": {"enum": ["", "ab", "a\"b"]}, "maxLength": 4})",
    R"({"type": "string", "pattern": "^[ab]{1,3}$", "not": {"pattern": "^a+$"}})",
    R"({"type": "integer", "minimum": 1, "maximum": 12, "not": {"enum": [1, 7.0, 11]}})",
    R"({"type": "number", "minimum": 0, "maximum": 1, "not": {"enum": [0, 0.5]}})",
    R"({"type": "number", "multipleOf": 2.5, "minimum": 0, "maximum": 20, "not": {"enum": [5, 6, 20]}})",
    R"({"type": "integer", "not": {"minimum": 3, "maximum": 900}})",
    R"({"type": ["boolean", "null", "integer", "string"], "not": {"anyOf": [{"const": false}, {"type": ["null", "string"]}]}})",
    R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "boolean"}}, "not": {"required": ["a", "b"]}})",
    R"({"type": "object", "not": {"required": ["a"]}, "additionalProperties": {"type": "null"}})",
    R"({"type": "object", "properties": {"kind": {"enum": ["a", "b", "c"]}, "x": {"type": "integer"}, "y": {"type": "null"}},
        "required": ["kind"], "if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["x"]},
        "else": {"properties": {"x": false}, "required": ["y"]}})",
    R"({"type": "object", "properties": {"k": {"enum": [1, 2, 3, 4, 5, 6, 7, 8]}, "v": {}}, "required": ["k", "v"], "allOf": [
        {"if": {"properties": {"k": {"const": 1}}}, "then": {"properties": {"v": {"const": 10}}}},
        {"if": {"properties": {"k": {"const": 2}}}, "then": {"properties": {"v": {"const": 20}}}},
        {"if": {"properties": {"k": {"const": 3}}}, "then": {"properties": {"v": {"const": 30}}}},
        {"if": {"properties": {"k": {"const": 4}}}, "then": {"properties": {"v": {"const": 40}}}},
        {"if": {"properties": {"k": {"const": 5}}}, "then": {"properties": {"v": {"const": 50}}}},
        {"if": {"properties": {"k": {"const": 6}}}, "then": {"properties": {"v": {"const": 60}}}},
        {"if": {"properties": {"k": {"const": 7}}}, "then": {"properties": {"v": {"const": 70}}}},
        {"if": {"properties": {"k": {"const": 8}}}, "then": {"properties": {"v": {"const": 80}}}}]})",
    R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "boolean"}, "c": {"type": "null"}},
        "dependentRequired": {"a": ["b"], "c": ["a", "b"]}})",
    R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "integer"}}, "dependentSchemas": {"a":
        {"properties": {"b": {"minimum": 5}}}}, "dependencies": {"b": ["a"]}})",
    R"({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "contains": {"minimum": 50}})",
    R"({"type": "array", "items": {"enum": [1, 2, 3, "x"]}, "contains": {"enum": [2, 3]}, "minContains": 2, "maxContains": 3,
        "minItems": 3, "maxItems": 6})",
    R"({"type": "array", "prefixItems": [{"type": "null"}, {"type": "integer"}], "items": {"type": "boolean"},
        "contains": {"const": true}})",
    R"({"type": "array", "items": {"type": ["integer", "null"]}, "not": {"items": {"type": "integer"}}, "maxItems": 3})",
    R"({"type": "array", "items": {"enum": [1, 2]}, "contains": {"const": 1}, "minContains": 0, "maxContains": 1})",
    R"({"$ref": "#item", "$defs": {"a": {"$anchor": "item", "type": "array", "items": {"$ref": "#leaf"}, "maxItems": 2},
        "b/c": {"$dynamicAnchor": "leaf", "enum": [1, 2]}}})",
    R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}, {"required": ["c"]}]})",
    R"({"oneOf": [{"enum": [3, {"a": 1, "b": [2]}]}, {"enum": [4, {"b": [2.0], "a": 1}]}]})",
    R"({"oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}}}]})",
    R"({"oneOf": [{"properties": {"a": {}}}, {"type": "string"}]})",
    R"({"type": "string", "format": "date", "not": {"pattern": "^19"}})",
    R"({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "number", "maximum": 10}]})",
    R"({"type": "string", "pattern": "^[a-z]{250}x*$", "maxLength": 255})",
    R"({"type": "string", "pattern": "^(?=.{1,120}\\.?$)[a-z](?:[a-z-]{0,61}[a-z])?(?:\\.[a-z](?:[-a-z]{0,61}[a-z])?)*\\.?$",
        "maxLength": 90})",
    R"({"enum": ["ab", "cde", "x", 3, 7.5, 12, null], "minLength": 2, "pattern": "[be]", "minimum": 5, "exclusiveMaximum": 12})",
    R"({"enum": [3, 4, 6, 9], "type": "integer", "multipleOf": 3, "not": {"const": 6}})",
    R"({"type": "array", "items": {"type": "string", "maxLength": 4}, "contains": {"const": "x"}, "maxItems": 3})",
};

TEST(SchemaNegation, WhatTheAutomatonAcceptsValidates) {
  std::mt19937 rng(5);
  for (const char* text : kConditionals) test::expect_walks_validate(text, 100, rng);
}

/// What must not be lost.
TEST(SchemaNegation, WhatHoldsIsAccepted) {
  const char* const kinds = R"({"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "x": {"type": "null"}},
      "required": ["kind"], "if": {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
      "then": {"required": ["x"]}})";
  const char* const depends = R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
      "dependentRequired": {"a": ["b"]}})";
  const char* const some =
      R"({"type": "array", "items": {"enum": [1, 2, 3]}, "contains": {"const": 2}, "minContains": 2,
      "maxContains": 2, "maxItems": 4})";
  const std::tuple<const char*, const char*, bool> cases[] = {
      {R"({"type": "string", "not": {"const": "no"}})", R"("yes")", true},
      {R"({"type": "string", "not": {"const": "no"}})", R"("n")", true},
      {R"({"type": "string", "not": {"const": "no"}})", R"("no")", false},
      {R"({"type": "string", "not": {"const": "no"}})", R"("n\u006f")", false},
      {R"({"type": "string", "not": {"const": ""}})", R"("n\u006f")", true},
      {R"({"type": "number", "not": {"const": 1}})", "1.0", false},
      {R"({"type": "number", "not": {"const": 1}})", "1.5", true},
      {R"({"type": "number", "not": {"const": 1}})", "-1", true},
      {R"({"type": "integer", "not": {"const": 0}})", "0", false},
      {R"({"type": "integer", "not": {"const": 0}})", "10", true},
      {R"({"not": {"type": "object"}})", "[1]", true},
      {R"({"not": {"type": "object"}})", "{}", false},
      {R"({"type": "object", "not": {"required": ["a"]}})", R"({"b": 1, "aa": 2})", true},
      {R"({"type": "object", "not": {"required": ["a"]}})", R"({"b": 1, "a": 2})", false},
      {kinds, R"({"kind": "a", "x": null})", true},
      {kinds, R"({"kind": "b", "x": null})", true},
      {kinds, R"({"kind": "b"})", true},
      {kinds, R"({"kind": "a"})", false},
      {depends, R"({"b": null})", true},
      {depends, R"({"a": null, "b": null})", true},
      {depends, "{}", true},
      {depends, R"({"a": null})", false},
      {some, "[2, 2]", true},
      {some, "[1, 2, 3, 2]", true},
      {some, "[2, 1]", false},
      {some, "[2, 2, 2]", false},
      {some, "[1, 2, 1, 3, 2]", false},
  };
  for (const auto& [schema, text, expected] : cases)
    EXPECT_EQ(test::schema_dfa(schema).matches(text), expected) << schema << "\n" << text;
}

TEST(SchemaNegation, WhatIsSaidBesideHolds) {
  const std::tuple<const char*, const char*, bool> cases[] = {
      {kConditionals[8], R"({"b": null})", true},
      {kConditionals[8], R"({"b": 1})", false},
      {R"({"type": "array", "items": {"enum": [1, 2]}, "maxItems": 3, "contains": {"const": 1},
          "not": {"contains": {"const": 1}, "minContains": 3}})",
       "[]", false},
      {R"({"type": "array", "items": {"enum": [1, 2]}, "maxItems": 3, "contains": {"const": 1},
          "not": {"contains": {"const": 1}, "minContains": 3}})",
       "[1, 1]", true},
      {R"({"type": "array", "items": {"enum": [1, 2]}, "allOf": [{"contains": {"const": 1}},
          {"contains": {"const": 1}, "minContains": 0}]})",
       "[]", false},
      {R"({"type": "array", "items": {"enum": [1, 2]}, "allOf": [{"contains": {"const": 1}, "maxContains": 1},
          {"contains": {"const": 1}, "maxContains": 2}]})",
       "[1, 1]", false},
      {R"({"type": "object", "propertyNames": {"not": {"const": "a"}}})", R"({"a": 1})", false},
      {R"({"type": "object", "propertyNames": {"not": {"const": "a"}}})", R"({"b": 1})", true},
      {R"({"type": "object", "propertyNames": {"anyOf": [{"const": "a"}, {"maxLength": 0}]}})", R"({"b": 1})", false},
      {R"({"type": "object", "propertyNames": {"anyOf": [{"const": "a"}, {"maxLength": 0}]}})", R"({"a": 1})", true},
      {R"({"type": "object", "propertyNames": {"pattern": "b", "not": {"enum": ["ab"]}}})", R"({"ab": 1})", false},
      {R"({"$ref": "#name", "properties": {"default": {"$anchor": "name", "type": "null"}}})", "null", true},
      {R"({"properties": {"enum": {"$ref": "#name"}}, "required": ["enum"], "type": "object",
          "$defs": {"a": {"$anchor": "name", "type": "null"}}})",
       R"({"enum": null})", true},
  };
  for (const auto& [schema, text, expected] : cases)
    EXPECT_EQ(test::schema_dfa(schema).matches(text), expected) << schema << "\n" << text;
}

TEST(SchemaNegation, WhatCannotBeNegatedIsNamed) {
  const std::tuple<const char*, const char*> cases[] = {
      {R"({"type": "string", "not": {"format": "date"}})", "$.not.format"},
      {R"({"type": "number", "not": {"multipleOf": 2}})", "$.not.multipleOf"},
      {R"({"if": {"additionalProperties": false}, "then": {"required": ["a"]}})", "$.if.additionalProperties"},
      {R"({"not": {"enum": 3}})", "$.not.enum"},
      {R"({"not": {"enum": [{"a": 1}]}})", "$.not"},
      {R"({"not": {"required": "a"}})", "$.not.required"},
      {R"({"type": "object", "dependentRequired": {"a": [3]}})", "$.dependentRequired.a[0]"},
      {R"({"type": "object", "dependentRequired": ["a"]})", "$.dependentRequired"},
      {R"({"not": {"$ref": "#"}})", "$"},
      {R"({"type": "array", "contains": {}, "uniqueItems": true, "items": {"enum": [1]}})", "$.contains"},
      {R"({"$ref": "#none"})", "$.$ref"},
      {R"({"type": "number", "not": {"enum": [1, 0.12345678901234567]}})", "$.not"},
      {R"({"enum": [1, 18446744073709551615], "maximum": 5})", "$"},
      {R"({"enum": [-1], "maximum": 18446744073709551615})", "$"},
      {R"({"type": "object", "properties": {"ab": {}}, "propertyNames": {"maxLength": 1}})", "$.propertyNames"},
      {R"({"$ref": "#a", "$defs": {"x": {"$anchor": "a"}, "y": {"$anchor": "a"}}})", "$.$defs.y.$anchor"},
  };
  for (const auto& [schema, where] : cases) {
    const auto pattern = parse_schema(schema);
    ASSERT_FALSE(pattern.has_value()) << schema;
    EXPECT_EQ(pattern.error().where, where) << pattern.error().message();
  }
}

/// Whose conditions exclude each other: alternatives that nothing fits are left out at once.
TEST(SchemaNegation, ManyConditionsOfOneProperty) {
  nlohmann::ordered_json schema = {
      {"type", "object"}, {"required", {"kind"}}, {"allOf", nlohmann::ordered_json::array()}};
  for (int i = 0; i < 14; ++i) {
    const std::string name = "p" + std::to_string(i);
    schema["properties"]["kind"]["enum"].push_back(name);
    schema["properties"][name] = {{"type", "null"}};
    schema["allOf"].push_back(
        {{"if", {{"properties", {{"kind", {{"const", name}}}}}}}, {"then", {{"required", {name}}}}});
  }
  const Dfa dfa = test::schema_dfa(schema.dump());
  EXPECT_TRUE(dfa.matches(R"({"kind": "p7", "p7": null})"));
  EXPECT_FALSE(dfa.matches(R"({"kind": "p7", "p8": null})"));
}

/// Of a product that is too large shorter texts are produced, and never one that must not match.
TEST(SchemaNegation, ShorterProductsForbidTheSame) {
  const Dfa dfa = test::schema_dfa(R"({"type": "string", "pattern": "^(?![abx.]{0,200}x)(?:[abx]{1,150}[.])*$"})");
  const std::string part = std::string(30, 'a') + ".";
  std::string text = "\"" + part + part + part;
  EXPECT_FALSE(dfa.matches(text + "x.\""));
  for (int i = 0; i < 6; ++i) text += part;
  EXPECT_TRUE(dfa.matches(text + "x.\""));
  EXPECT_FALSE(dfa.matches("\"" + std::string(100, 'a') + ".\""));  // it is too large for that
}

/// A shorter product would tell of too few texts that they match.
TEST(SchemaNegation, ListedTextsAreMatchedWhole) {
  const std::string pattern = "^(?![abx.]{0,200}x)(?:[abx]{1,150}[.])*$", listed = std::string(100, 'a') + ".";
  for (const nlohmann::ordered_json& schema :
       {nlohmann::ordered_json{{"enum", {listed}}, {"not", {{"pattern", pattern}}}},
        nlohmann::ordered_json{{"type", "object"},
                               {"properties", {{listed, {{"type", "null"}}}}},
                               {"patternProperties", {{pattern, {{"type", "string"}}}}}}}) {
    const auto read = schema_pattern(schema);
    if (!read) continue;
    EXPECT_FALSE(compile(**read).has_value()) << schema;
  }
}

/// Names that many negations copy are counted, and long places are not kept whole.
TEST(SchemaNegation, CopiedNamesAreLimited) {
  nlohmann::ordered_json names, some = nlohmann::ordered_json::array();
  for (int i = 0; i < 2000; ++i) names["a"].push_back("n" + std::to_string(i));
  for (int i = 0; i < 200; ++i) some.push_back({{"$ref", "#/$defs/x"}});
  const nlohmann::ordered_json schema = {{"not", {{"anyOf", some}}},
                                         {"$defs", {{"x", {{"dependentRequired", names}}}}}};
  const auto copied = schema_pattern(schema);
  ASSERT_FALSE(copied.has_value());
  EXPECT_EQ(copied.error().where, "$.$defs.x.dependentRequired");
  const auto named = schema_pattern({{"type", "object"}, {"properties", {{std::string(5000, 'n'), true}}}});
  ASSERT_TRUE(named.has_value());
  std::size_t longest = 0;
  std::vector<const Pattern*> left = {named->get()};
  for (std::size_t i = 0; i < left.size(); ++i) {
    longest = std::max(longest, left[i]->place.size());
    for (const PatternPtr& part : left[i]->parts) left.push_back(part.get());
  }
  EXPECT_GT(longest, 100U);
  EXPECT_LT(longest, 210U);
}

/// An error about the size says which part is large.
TEST(SchemaNegation, TheLargestPartIsNamed) {
  const auto pattern = parse_schema(R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "array",
      "items": {"type": "string", "minLength": 200}, "minItems": 60}}, "required": ["b"]})");
  ASSERT_TRUE(pattern.has_value());
  const auto dfa = compile(**pattern);
  ASSERT_FALSE(dfa.has_value());
  EXPECT_EQ(dfa.error().where, "$.properties.b.items");
}

}  // namespace
}  // namespace dllm::constrain
