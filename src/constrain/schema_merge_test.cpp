#include "constrain/schema_merge.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "constrain/json_schema.h"
#include "constrain/testing/schema_dfa.h"

namespace dllm::constrain {
namespace {

using Json = nlohmann::ordered_json;

/// What is valid is in json_schema_test.cpp's walks; here: what must not be lost.
TEST(SchemaMerge, WhatFitsAllIsAccepted) {
  const std::tuple<const char*, const char*, bool> cases[] = {
      {R"({"allOf": [{"type": "integer", "minimum": 1}, {"maximum": 3}, {"minimum": 2}]})", "2", true},
      {R"({"allOf": [{"type": "integer", "minimum": 1}, {"maximum": 3}, {"minimum": 2}]})", "1", false},
      {R"({"allOf": [{"type": "integer", "minimum": 1}, {"maximum": 3}, {"minimum": 2}]})", "4", false},
      {R"({"allOf": [{"type": "number"}, {"type": ["integer", "string"]}]})", "7", true},
      {R"({"allOf": [{"type": "number"}, {"type": ["integer", "string"]}]})", "7.5", false},
      {R"({"allOf": [{"multipleOf": 4}, {"type": "integer", "multipleOf": 6, "maximum": 50}]})", "36", true},
      {R"({"allOf": [{"multipleOf": 4}, {"type": "integer", "multipleOf": 6, "maximum": 50}]})", "18", false},
      {R"({"allOf": [{"properties": {"a": {"type": "null"}}}, {"properties": {"b": {"const": 1}}, "required": ["b"]}]})",
       R"({"a": null, "b": 1})", true},
      {R"({"allOf": [{"properties": {"a": {"type": "null"}}}, {"properties": {"b": {"const": 1}}, "required": ["b"]}]})",
       R"({"a": null})", false},
      {R"({"allOf": [{"properties": {"a": {"type": "null"}}, "additionalProperties": false}, {"properties": {"b": {}}}]})",
       R"({"a": null})", true},
      {R"({"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {"const": 1}, "b": {"const": 2}}})",
       R"({"b": 2})", true},
      {R"({"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {"const": 1}, "b": {"const": 2}}})",
       "{}", false},
      {R"({"$ref": "#/$defs/n", "maximum": 4, "$defs": {"n": {"type": "integer", "minimum": 3}}})", "4", true},
      {R"({"$ref": "#/$defs/n", "maximum": 4, "$defs": {"n": {"type": "integer", "minimum": 3}}})", "5", false},
      {R"({"$ref": "#/$defs/n", "description": "only said", "$defs": {"n": {"type": "null"}}})", "null", true},
      {R"({"allOf": [{"uniqueItems": true}, {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": false}]})",
       "[1, 1]", false},
      {R"({"items": {"enum": [1, 2, 3]}, "uniqueItems": true, "type": "array", "allOf": [{"items": {"minimum": 3}}]})",
       "[1]", false},
      {R"({"items": {"enum": [1, 2, 3]}, "uniqueItems": true, "type": "array", "allOf": [{"items": {"minimum": 3}}]})",
       "[3]", true},
      {R"({"type": "array", "uniqueItems": true, "items": {"allOf": [{"enum": ["a", "bb"]}, {"minLength": 2}]},
          "minItems": 1})",
       R"(["a"])", false},
      {R"({"type": "array", "uniqueItems": true, "items": {"allOf": [{"enum": ["a", "bb"]}, {"minLength": 2}]},
          "minItems": 1})",
       R"(["bb"])", true},
      {R"({"const": 1, "enum": [1.0, 3]})", "1", true},
      {R"({"allOf": [true, {"type": "null"}]})", "null", true},
      {R"({"allOf": [{"const": 1}, {"enum": [1.0, 2]}]})", "1.0", true},
      {R"({"allOf": [{"const": {"a": 1, "b": [2]}}, {"enum": [{"b": [2.0], "a": 1}, 3]}]})", R"({"b": [2.0], "a": 1})",
       true},
      {R"({"allOf": [{"enum": [[1, 2]]}, {"enum": [[1, 2], [2, 1]]}]})", "[1, 2]", true},
      {R"({"allOf": [{"enum": [[1, 2]]}, {"enum": [[1, 2], [2, 1]]}]})", "[2, 1]", false},
      {R"({"allOf": [{"type": ["null", "null"]}, {"type": ["string", "null", "integer"]}]})", "3", false},
      {R"({"allOf": [{"type": ["number", "null"]}, {"type": ["integer", "integer"]}]})", "3", true},
  };
  for (const auto& [schema, text, accepted] : cases)
    EXPECT_EQ(test::schema_dfa(schema).matches(text), accepted) << schema << " " << text;
}

/// They are no part of what is merged, and are not counted as such.
TEST(SchemaMerge, DefinitionsAreNotCopied) {
  Json schema = {{"allOf", Json::array()}, {"$defs", Json::object()}};
  for (int i = 0; i < 40; ++i)
    schema["allOf"].push_back({{"properties", {{"p" + std::to_string(i), {{"type", "null"}}}}}});
  for (int i = 0; i < 900; ++i) schema["$defs"]["d" + std::to_string(i)] = {{"type", "string"}, {"minLength", i}};
  const auto pattern = schema_pattern(schema);
  ASSERT_TRUE(pattern.has_value()) << pattern.error().message();
}

TEST(SchemaMerge, NothingFitsContradictions) {
  for (const char* schema :
       {R"({"allOf": [{"type": "null"}, {"type": "string"}]})", R"({"allOf": [{"const": 1}, {"const": 2}]})",
        R"({"allOf": [{"type": "null"}, false]})", R"({"allOf": [{"type": "null"}, {"const": 2}]})",
        R"({"allOf": [{"minimum": 3}, {"const": 2}]})", R"({"enum": ["a", "bb"], "minLength": 3})",
        R"({"const": 1, "enum": [2, 3]})", R"({"allOf": [{"const": 1, "enum": [2, 3]}, {"minimum": 0}]})",
        R"({"type": "string", "maxLength": 0, "not": {"const": ""}})", R"({"enum": ["a", "bb"], "pattern": "c"})",
        R"({"const": 4, "multipleOf": 3})"}) {
    const auto pattern = parse_schema(schema);
    ASSERT_TRUE(pattern.has_value()) << schema;
    EXPECT_FALSE(compile(**pattern).has_value()) << schema;
  }
}

TEST(SchemaMerge, WhatOneSchemaCannotSayIsRefused) {
  const std::tuple<const char*, const char*> cases[] = {
      {R"({"allOf": []})", "$.allOf"},
      {R"({"allOf": {}})", "$.allOf"},
      {R"({"allOf": [3, {}]})", "$.allOf[0]"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b)|(c"}]})", "$.allOf[1].pattern"},
      {R"({"allOf": [{"pattern": "b)|(c"}, {"pattern": "a"}]})", "$.pattern"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": 3}]})", "$.allOf[1].pattern"},
      {R"({"allOf": [{"format": "date"}, {"format": "time"}]})", "$.allOf[1].format"},
      {R"({"allOf": [{"multipleOf": 0.5}, {"multipleOf": 3}]})", "$.allOf[1].multipleOf"},
      {R"({"allOf": [{"minimum": 1}, {"minimum": "2"}]})", "$.allOf[1].minimum"},
      {R"({"allOf": [{"prefixItems": [{}]}, {"items": {}}]})", "$.allOf[1]"},
      {R"({"allOf": [{"patternProperties": {"a": {}}}, {"properties": {"b": {}}}]})", "$.allOf[1]"},
      {R"({"allOf": [{"oneOf": [{"type": "null"}]}, {"oneOf": [{"type": "string"}]}]})", "$.allOf[1].oneOf"},
      {R"({"oneOf": [{"format": "date"}, {"format": "time"}], "type": "string"})", "$.oneOf"},
      {R"({"$ref": "#", "minimum": 3})", "$"},
  };
  for (const auto& [schema, where] : cases) {
    const auto pattern = parse_schema(schema);
    ASSERT_FALSE(pattern.has_value()) << schema;
    EXPECT_EQ(pattern.error().where, where) << pattern.error().message();
  }
}

TEST(SchemaMerge, WorkIsLimited) {
  // Each definition holds twice what the next one holds.
  Json laughs = {{"$ref", "#/$defs/d0"}, {"$defs", Json::object()}};
  for (int i = 0; i < 40; ++i) {
    const auto ref = [&](int to) { return Json{{"$ref", "#/$defs/d" + std::to_string(to)}}; };
    laughs["$defs"]["d" + std::to_string(i)] =
        i == 39 ? Json{{"type", "null"}} : Json{{"allOf", {ref(i + 1), ref(i + 1), {{"minimum", i}}}}};
  }
  const auto pattern = schema_pattern(laughs);
  ASSERT_FALSE(pattern.has_value());

  // Few levels, of many schemas each.
  Json many = {{"$ref", "#/$defs/d0"}, {"$defs", Json::object()}};
  for (int i = 0; i < 5; ++i) {
    Json all = Json::array();
    for (int j = 0; j < 50; ++j)
      all.push_back(i == 4 ? Json{{"minimum", j}} : Json{{"$ref", "#/$defs/d" + std::to_string(i + 1)}});
    many["$defs"]["d" + std::to_string(i)] = {{"allOf", all}};
  }
  const auto wall = schema_pattern(many);
  ASSERT_FALSE(wall.has_value());
  EXPECT_NE(wall.error().what.find("too many schemas that must all hold"), std::string::npos) << wall.error().message();

  // A list of 250 beside 2,000 keywords.
  Json wide = {{"anyOf", Json::array()}, {"properties", Json::object()}};
  for (int i = 0; i < 250; ++i) wide["anyOf"].push_back({{"required", {"p" + std::to_string(i)}}});
  for (int i = 0; i < 500; ++i) wide["properties"]["p" + std::to_string(i)] = {{"type", "integer"}, {"minimum", i}};
  EXPECT_FALSE(schema_pattern(wide).has_value());
}

}  // namespace
}  // namespace dllm::constrain
