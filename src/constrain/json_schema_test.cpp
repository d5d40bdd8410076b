#include "constrain/json_schema.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <stop_token>
#include <string>

#include "constrain/dfa.h"
#include "constrain/testing/schema_dfa.h"
#include "constrain/testing/walks.h"

namespace dllm::constrain {
namespace {

using Json = nlohmann::ordered_json;

using test::schema_dfa;

const char* const kSchemas[] = {
    R"({"type": "string", "minLength": 2, "maxLength": 5})",
    R"({"type": "string", "pattern": "^[a-c]+\"?\\\\n$"})",
    R"({"type": "string", "pattern": "b\\d"})",
    R"({"type": "integer", "minimum": -17, "maximum": 1204})",
    R"({"type": "integer", "exclusiveMinimum": 5, "maximum": 7})",
    R"({"type": "number"})",
    R"({"type": ["boolean", "null"]})",
    R"({"enum": ["a", 1, null, {"x": [1, 2]}, "é\n\""]})",
    R"({"const": {"a": [true, "b"]}})",
    R"({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 2, "maxItems": 4})",
    R"({"type": "array", "items": {"type": "boolean"}, "maxItems": 0})",
    R"({"type": "array", "minItems": 1, "maxItems": 2})",
    R"({"type": "object"})",
    R"({"type": "object", "additionalProperties": false})",
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 4}, "age": {"type": "integer"},
        "ok": {"type": "boolean"}}, "required": ["name", "ok"], "additionalProperties": false})",
    R"({"properties": {"a": {"type": "null"}, "b": {"const": 1}, "c": {"const": 2}}})",
    R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})",
    R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "x": {"type": "integer"}}, "required": ["k"]},
        {"type": "object", "properties": {"k": {"enum": ["b", "c"]}}, "required": ["k"]}, {"type": "null"}]})",
    R"({"type": "array", "items": {"$ref": "#/$defs/p"}, "$defs": {"p": {"type": "object", "properties":
        {"x": {"$ref": "#/$defs/n"}, "y": {"$ref": "#/$defs/n"}}, "required": ["x", "y"]}, "n": {"type": "integer"}}})",
    R"({"type": "object", "additionalProperties": {"type": "integer", "minimum": 3}, "maxProperties": 2})",
    R"({"type": "object", "patternProperties": {"^[ab]{1,2}$": {"type": "boolean"}}, "additionalProperties": false})",
    R"({"type": "object", "propertyNames": {"enum": ["x", "y"]}, "additionalProperties": {"type": "null"}})",
    R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}, {"type": "null"}], "minItems": 1,
        "items": false})",
    R"({"type": "array", "prefixItems": [{"type": "null"}], "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 4})",
    R"({"type": "array", "items": [{"type": "null"}, {"type": "boolean"}], "additionalItems": {"type": "string"}})",
    R"({"type": "array", "items": {"enum": ["a", "b", "a", 3]}, "uniqueItems": true, "minItems": 1, "maxItems": 2})",
    R"({"type": "array", "items": {"enum": [1, 2, 3, 4, 5, 6, 7, 8]}, "uniqueItems": true, "minItems": 2})",
    R"({"type": "array", "items": {"type": "boolean"}, "uniqueItems": true})",
    R"({"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 11}, "maxItems": 3})",
    R"({"type": "object", "properties": {"a": {"type": "string", "maxLength": 10}, "b": {"type": "string",
        "maxLength": 20}}, "additionalProperties": {"type": "string", "maxLength": 10}})",
    R"({"type": "array", "items": {"type": "integer", "exclusiveMinimum": -3, "maximum": 20.5}, "uniqueItems": true})",
    R"({"type": "number", "minimum": 0, "exclusiveMaximum": 1})",
    R"({"type": "number", "exclusiveMinimum": -2.5, "maximum": 3.25})",
    R"({"type": "number", "minimum": 0.001})",
    R"({"type": "integer", "minimum": 9007199254740000, "maximum": 9007199254740991})",
    R"({"type": "object", "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["value", "next"]})",
    R"({"$ref": "#/$defs/a%20b~1c", "$defs": {"a b/c": {"type": "array", "items": {"$ref": "#/$defs/a%20b~1c"}}}})",
    R"({"type": "object", "properties": {"a": true, "b": false, "c": {}}, "required": ["a"]})",
    R"({"type": "object", "required": ["undeclared"]})",
    R"({"allOf": [{"type": "boolean"}], "title": "one"})",
    R"({"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"y": {"minimum": 5}, "z": {"type": "boolean"}}, "required": ["y"]}],
        "$defs": {"a": {"type": "object", "properties": {"x": {"type": "null"}, "y": {"type": "integer", "maximum": 8}},
        "required": ["x"]}}})",
    R"({"allOf": [{"type": "number", "minimum": 2, "multipleOf": 2}, {"type": ["integer", "null"], "multipleOf": 3,
        "maximum": 40}]})",
    R"({"allOf": [{"type": "object", "additionalProperties": {"type": "integer"}}, {"properties": {"a": {"minimum": 3},
        "b": {}}}], "required": ["a"]})",
    R"({"allOf": [{"properties": {"a": {"type": "null"}}, "additionalProperties": false}, {"properties": {"b": {"type":
        "null"}}}]})",
    R"({"allOf": [{"enum": [1, "a", null, 2.0]}, {"enum": [2, "a", true]}], "type": ["integer", "string"]})",
    R"({"$ref": "#/$defs/s", "minLength": 2, "$defs": {"s": {"type": "string", "maxLength": 3}}})",
    R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "boolean"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
    R"({"oneOf": [{"properties": {"k": {"const": 1}}, "required": ["k"]}, {"properties": {"k": {"const": 2}, "v": {"type":
        "null"}}, "required": ["k"]}], "type": "object", "properties": {"w": {"type": "boolean"}}})",
    R"({"allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"anyOf": [{"minimum": 3, "maxLength": 1},
        {"maximum": -3, "minLength": 9, "maxLength": 9}]}]})",
    R"({"allOf": [{"items": {"type": "integer"}, "minItems": 1}, {"type": "array", "items": {"minimum": 7}, "maxItems": 2}]})",
    "{}",
    R"({"type": "string", "pattern": "^[a-c\"]+$", "minLength": 2, "maxLength": 9})",
    R"({"type": "string", "pattern": "^(?=.*b)(?!.*aa)[ab]*$", "maxLength": 6})",
    R"({"allOf": [{"type": "string", "pattern": "^[ab]*$"}, {"pattern": "aa"}, {"pattern": "bb", "maxLength": 6}]})",
};

TEST(JsonSchema, WhatTheAutomatonAcceptsParsesAndValidates) {
  std::mt19937 rng(3);
  // 20,000 of all schemas together.
  for (const char* text : kSchemas) test::expect_walks_validate(text, 1 + 20'000 / std::size(kSchemas), rng);
}

TEST(JsonSchema, AcceptsWhatItShould) {
  const std::tuple<const char*, const char*, bool> cases[] = {
      {kSchemas[0], R"("ab")", true},
      {kSchemas[0], R"("a\u00e9\n日b")", true},
      {kSchemas[0], R"("a")", false},
      {kSchemas[1], R"("abc\"\\n")", true},
      {kSchemas[2], R"("aab7x")", true},
      {kSchemas[2], R"("aabx")", false},
      {kSchemas[3], "-17", true},
      {kSchemas[3], "-18", false},
      {kSchemas[3], "0", true},
      {kSchemas[3], "1204", true},
      {kSchemas[3], "1205", false},
      {kSchemas[3], "007", false},
      {kSchemas[4], "6", true},
      {kSchemas[4], "5", false},
      {kSchemas[5], "-1.5e-07", true},
      {kSchemas[5], "1.", false},
      {kSchemas[9], "[1, 2,3]", true},
      {kSchemas[9], "[1]", false},
      {kSchemas[9], "[1,  2]", false},
      {kSchemas[12], R"({"a": {"b": [1, {}]}})", true},
      {kSchemas[12], R"({"a": {"b": [1, {"c": []}]}})", false},
      {kSchemas[14], R"({"name": "x", "ok": true})", true},
      {kSchemas[14], R"({"name":"x","age":3,"ok":false})", true},
      {kSchemas[14], R"({"ok": true, "name": "x"})", false},
      {kSchemas[14], R"({"name": "x"})", false},
      {kSchemas[15], "{}", true},
      {kSchemas[15], R"({"b": 1})", true},
      {kSchemas[15], R"({"a": null, "c": 2})", true},
      {kSchemas[15], R"({"a": null,})", false},
  };
  for (const auto& [schema, text, expected] : cases)
    EXPECT_EQ(schema_dfa(schema).matches(text), expected) << schema << "\n" << text;
}

/// Short texts that stand for enormous automata. The limits are counts, so that no clock is needed: what is beyond them
/// is refused, and the work until then is theirs.

using SchemaCases = std::vector<std::tuple<const char*, const char*, bool>>;

/// Schemas, texts, and whether the one accepts the other.
void expect_accepted(const SchemaCases& cases) {
  for (const auto& [schema, text, expected] : cases)
    EXPECT_EQ(schema_dfa(schema).matches(text), expected) << schema << "\n" << text;
}

TEST(JsonSchema, MultiplesMeanWhatTheStandardSays) {
  expect_accepted({
      {R"({"type": "integer", "multipleOf": 5})", "-15", true},
      {R"({"type": "integer", "multipleOf": 5})", "0", true},
      {R"({"type": "integer", "multipleOf": 5})", "1234567890", true},
      {R"({"type": "integer", "multipleOf": 5})", "13", false},
      {R"({"type": "integer", "multipleOf": 4})", "136", true},
      {R"({"type": "integer", "multipleOf": 4})", "134", false},
      {R"({"type": "integer", "multipleOf": 4})", "04", false},
      {R"({"type": "integer", "multipleOf": 1000.0})", "7000", true},
      {R"({"type": "integer", "multipleOf": 1000.0})", "7100", false},
      {R"({"type": "integer", "multipleOf": 3})", "12", true},
      {R"({"type": "integer", "multipleOf": 3})", "13", false},
      {R"({"type": "integer", "multipleOf": 0.5})", "3", true},
      {R"({"type": "integer", "multipleOf": 1.5})", "3", true},
      {R"({"type": "integer", "multipleOf": 1.5})", "4", false},
      {R"({"type": "integer", "multipleOf": 5, "minimum": 0})", "-5", false},
      {R"({"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 9007199254740991})", "9007199254740990", true},
      {R"({"type": "integer", "multipleOf": 99991, "exclusiveMinimum": 0, "maximum": 1000000})", "199982", true},
      {R"({"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 10})", "7.5", true},
      {R"({"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 10})", "7.25", false},
      {R"({"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 10})", "10.5", false},
      {R"({"type": "number", "multipleOf": 0.01})", "19.99", true},
      {R"({"type": "number", "multipleOf": 0.01})", "19.995", false},
      {R"({"type": "number", "multipleOf": 5})", "15", true},
      {R"({"type": "number", "multipleOf": 5})", "15.5", false},
  });
}

TEST(JsonSchema, KeywordsMeanWhatTheStandardSays) {
  expect_accepted({
      {R"({"type": "boolean", "x-order": 1, "maxLength": 3, "unheard": {"of": 1}})", "true", true},
      {R"({"type": "integer", "minimum": 0.5, "maximum": 10.0})", "1", true},
      {R"({"type": "integer", "minimum": 0.5, "maximum": 10.0})", "0", false},
      {R"({"type": "integer", "minimum": 0.5, "maximum": 10.0})", "10", true},
      {R"({"type": "integer", "minimum": 0.5, "maximum": 10.0})", "11", false},
      {R"({"type": "integer", "exclusiveMinimum": -0.5, "exclusiveMaximum": 2.0})", "0", true},
      {R"({"type": "integer", "exclusiveMinimum": -0.5, "exclusiveMaximum": 2.0})", "-1", false},
      {R"({"type": "integer", "exclusiveMinimum": -0.5, "exclusiveMaximum": 2.0})", "2", false},
      {R"({"oneOf": [{"const": 9007199254740993}, {"const": 9007199254740992}]})", "9007199254740993", true},
      {R"({"type": "string", "enum": ["a", 1]})", R"("a")", true},
      {R"({"type": "string", "enum": ["a", 1]})", "1", false},
      {R"({"type": "string", "enum": ["a", 1, "b"]})", R"("b")", true},
      {R"({"type": "number", "minimum": -1})", "-0", false},
      {R"({"type": "number", "minimum": -1})", "-0.0", false},
      {R"({"type": "integer", "enum": [1.0, 1.5]})", "1.0", true},
      {R"({"type": "integer", "enum": [1.0, 1.5]})", "1.5", false},
      {R"({"type": "string", "pattern": "^\\S$"})", "\"\u00A0\"", false},
      {R"({"type": "string", "pattern": "^[^\\s]$"})", "\"\u3000\"", false},
      {R"({"type": "string", "pattern": "^\\s$"})", "\"\uFEFF\"", true},
      {R"({"type": "string", "pattern": "^\\s$"})", "\"\u180E\"", false},
      {R"({"type": "string", "pattern": "^.$"})", "\"\u2028\"", false},
      {R"({"type": "string", "maxLength": 100000})", R"("a")", true},
      {R"({"type": "string", "maxLength": 1e15})", R"("a")", true},
      {R"({"type": "string", "pattern": "^[A-Z]{3}$", "maxLength": 3, "minLength": 2})", R"("ABC")", true},
      {R"({"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 3})", R"("abc")", true},
      {R"({"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 3})", R"("a")", false},
      {R"({"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 3})", R"("abcd")", false},
      {R"({"type": "string", "pattern": "^\\S+$", "maxLength": 5000})", R"("ab")", true},
      {R"({"type": "string", "pattern": "\"", "maxLength": 2})", R"("\"\"")", true},
      {R"({"type": "string", "pattern": "\"", "maxLength": 1})", R"("\"\"")", false},
      {R"({"type": "string", "pattern": "a", "minLength": 2})", R"("a")", false},
      {R"({"type": "string", "format": "email", "maxLength": 9})", R"("ab@cd.org")", true},
      {R"({"type": "string", "format": "email", "maxLength": 9})", R"("abc@cd.org")", false},
      {R"({"type": "string", "pattern": "^(?!.*\\.\\.)(?=.*b)[ab.]*$"})", R"("a.b.")", true},
      {R"({"type": "string", "pattern": "^(?!.*\\.\\.)(?=.*b)[ab.]*$"})", R"("b..a")", false},
      {R"({"allOf": [{"type": "string", "pattern": "^a|z"}, {"pattern": "b$"}, {"pattern": "c"}]})", R"("acb")", true},
      {R"({"allOf": [{"type": "string", "pattern": "^a|z"}, {"pattern": "b$"}, {"pattern": "c"}]})", R"("czb")", true},
      {R"({"allOf": [{"type": "string", "pattern": "^a|z"}, {"pattern": "b$"}, {"pattern": "c"}]})", R"("bcb")", false},
      {R"({"allOf": [{"type": "string", "pattern": "^a|z"}, {"pattern": "b$"}, {"pattern": "c"}]})", R"("ab")", false},
      {R"({"type": "array", "items": [{"type": "null"}], "minItems": 2})", R"([null, 7])", true},
      {R"({"type": "array", "prefixItems": [{"type": "null"}]})", R"([])", true},
      {R"({"type": "array", "prefixItems": [{"type": "null"}]})", R"([null, 7])", false},
      {R"({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": true})", R"([2, 1])", true},
      {R"({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": true})", R"([1, 1])", false},
      {R"({"type": "number", "minimum": 0.5})", "0.5", true},
      {R"({"type": "number", "minimum": 0.5})", "0.499", false},
      {R"({"type": "number", "exclusiveMinimum": 0.5})", "0.50", false},
      {R"({"type": "number", "minimum": -1, "maximum": 1})", "-0.25", true},
      {R"({"type": "number", "maximum": -1})", "-1", true},
      {R"({"type": "number", "maximum": -1})", "-0.99", false},
  });
}

/// Short texts that stand for enormous automata. The limits are counts, so that no clock is needed: what is beyond them
/// is refused, and the work until then is theirs.
TEST(JsonSchema, WhatIsTooLargeIsRefused) {
  Json laughs = {{"$ref", "#/$defs/d0"}, {"$defs", Json::object()}};
  for (int i = 0; i < 30; ++i) {
    const Json next = i == 29 ? Json{{"type", "string"}} : Json{{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
    laughs["$defs"]["d" + std::to_string(i)] = {
        {"type", "object"}, {"properties", {{"a", next}, {"b", next}}}, {"required", {"a", "b"}}};
  }
  const auto pattern = schema_pattern(laughs);
  ASSERT_TRUE(pattern.has_value()) << pattern.error().message();
  const auto dfa = compile(**pattern);
  ASSERT_FALSE(dfa.has_value());
  EXPECT_NE(dfa.error().what.find("too large: more than 60000 states"), std::string::npos) << dfa.error().what;

  // In oneOf, the same are compared in pairs.
  Json either = {{"oneOf", {{{"$ref", "#/$defs/d0"}}, {{"$ref", "#/$defs/d1"}}}}, {"$defs", laughs["$defs"]}};
  EXPECT_FALSE(schema_pattern(either).has_value());

  // A chain of references, of which each is read before the one that refers to it.
  Json chain = {{"type", "object"}, {"properties", Json::object()}, {"$defs", Json::object()}};
  for (int i = 500; i-- > 0;) {
    const std::string name = "d" + std::to_string(i);
    chain["properties"][name] = {{"$ref", "#/$defs/" + name}};
    chain["$defs"][name] = i == 499
                               ? Json{{"type", "null"}}
                               : Json{{"type", "array"}, {"items", {{"$ref", "#/$defs/d" + std::to_string(i + 1)}}}};
  }
  const auto deep = schema_pattern(chain);
  EXPECT_FALSE(deep && compile(**deep));

  for (const std::size_t levels : {std::size_t{61}, std::size_t{2000}, std::size_t{100'000}}) {
    std::string text;
    for (std::size_t i = 0; i < levels; ++i) text += R"({"items":)";
    EXPECT_FALSE(parse_schema(text + "{}" + std::string(levels, '}')).has_value());
  }
  std::stop_source stop;
  stop.request_stop();
  const auto stopped = compile(**parse_schema(R"({"type": "string"})"), {.stop = stop.get_token()});
  ASSERT_FALSE(stopped.has_value());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}

TEST(JsonSchema, ReferencesRecurseToTheStatedDepth) {
  const Dfa dfa =
      schema_dfa(R"({"$ref": "#/$defs/l", "$defs": {"l": {"type": "array", "items": {"$ref": "#/$defs/l"}}}})");
  EXPECT_TRUE(dfa.matches("[]"));
  EXPECT_TRUE(dfa.matches("[[[[[]]]], []]"));
  EXPECT_FALSE(dfa.matches("[[[[[[]]]]]]"));
  const auto endless = schema_pattern(Json::parse(R"({"$ref": "#"})"));
  ASSERT_TRUE(endless.has_value());
  EXPECT_FALSE(compile(**endless).has_value());
}

TEST(JsonSchema, ManyOptionalPropertiesStaySmall) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 100; ++i) schema["properties"]["p" + std::to_string(i)] = {{"type", "string"}};
  const Dfa dfa = schema_dfa(schema.dump());
  EXPECT_LT(dfa.states, 4000);
  EXPECT_TRUE(dfa.matches(R"({"p3": "", "p42": "x", "p99": "y"})"));
  EXPECT_FALSE(dfa.matches(R"({"p42": "", "p3": "x"})"));
}

using SchemaAndPlace = std::tuple<const char*, const char*>;

void expect_errors(std::initializer_list<SchemaAndPlace> cases) {
  for (const auto& [schema, where] : cases) {
    const auto parsed = parse_schema(schema);
    ASSERT_FALSE(parsed.has_value()) << schema;
    EXPECT_EQ(parsed.error().where, where) << parsed.error().message();
  }
}

TEST(JsonSchema, ErrorsNameThePath) {
  expect_errors({
      {"{", "$"},
      {"[]", "$"},
      {R"({"type": "strin"})", "$.type"},
      {R"({"type": ["string", 3]})", "$.type[1]"},
      {R"({"type": "integer", "multipleOf": 99991})", "$.multipleOf"},
      {R"({"type": "integer", "multipleOf": 5, "minimum": 1, "maximum": 4})", "$.multipleOf"},
      {R"({"type": "integer", "multipleOf": 0})", "$.multipleOf"},
      {R"({"type": "integer", "multipleOf": "5"})", "$.multipleOf"},
      {R"({"type": "integer", "multipleOf": -5})", "$.multipleOf"},
      {R"({"type": "number", "multipleOf": 1e-7})", "$.multipleOf"},
      {R"({"type": "number", "minimum": "3"})", "$.minimum"},
      {R"({"type": "integer", "minimum": 3, "exclusiveMinimum": true})", "$.exclusiveMinimum"},
      {R"({"type": "number", "minimum": 1, "exclusiveMaximum": 1})", "$"},
      {R"({"type": "number", "minimum": 0.1234567890123456})", "$.minimum"},
      {R"({"type": "integer", "minimum": 9223372036854775808})", "$.minimum"},
      {R"({"unevaluatedItems": {}})", "$.unevaluatedItems"},
      {R"({"$ref": "#/$defs/a%2", "$defs": {}})", "$.$ref"},
      {R"({"type": "string", "minLength": 3, "maxLength": 2})", "$.maxLength"},
      {R"({"type": "string", "minLength": -1})", "$.minLength"},
      {R"({"type": "string", "pattern": "^a?b$", "minLength": 3})", "$.minLength"},
      {R"({"type": "string", "pattern": "^a{9,}$", "maxLength": 8})", "$.maxLength"},
      {R"({"enum": []})", "$.enum"},
      {R"({"type": "string", "enum": [1, 2]})", "$.enum"},
      {R"({"type": "string", "const": 1})", "$.const"},
      {R"({"const": 4, "multipleOf": 0.5})", "$.multipleOf"},
      {R"({"$ref": "#/$defs/a", "$defs": {"b": {}}})", "$.$ref"},
      {R"({"$ref": "http://example.org/a"})", "$.$ref"},
      {R"({"type": "integer", "minimum": 4, "maximum": 3})", "$"},
      {R"({"type": "integer", "minimum": 1.2, "maximum": 1.8})", "$"},
  });
  std::string deep = R"({"type": "null"})";
  for (int i = 0; i < 100; ++i) deep = R"({"items": )" + deep + "}";
  EXPECT_FALSE(parse_schema(deep).has_value());
}

TEST(JsonSchema, ErrorsOfContainersNameThePath) {
  expect_errors({
      {R"({"type": "object", "type": "string"})", "$.type"},
      {R"({"properties": {"a": {"type": "string", "format": 3}}})", "$.properties.a.format"},
      {R"({"properties": {"a": {"type": "string", "format": "email", "maxLength": 3}}})", "$.properties.a.maxLength"},
      {R"({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a", "b"], "additionalProperties": false})",
       "$.required[1]"},
      {R"({"type": "object", "additionalProperties": {"type": "nul"}})", "$.additionalProperties.type"},
      {R"({"type": "object", "additionalProperties": 1, "properties": {"a": {}}})", "$.additionalProperties"},
      {R"({"type": "object", "patternProperties": {"a": {}, "b": {}}})", "$.patternProperties"},
      {R"({"type": "object", "patternProperties": {"a": {}}, "properties": {"xax": {}}})", "$.patternProperties.a"},
      {R"({"type": "object", "minProperties": 2})", "$.minProperties"},
      {R"({"type": "object", "maxProperties": 1, "properties": {"a": {}, "b": {}}})", "$.maxProperties"},
      {R"({"type": "object", "propertyNames": {"type": "integer"}})", "$.propertyNames"},
      {R"({"type": "object", "unevaluatedProperties": {}})", "$.unevaluatedProperties"},
      {R"({"type": "array", "contains": {"format": "date"}, "maxContains": 1})", "$.contains.format"},
      {R"({"type": "array", "prefixItems": {}})", "$.prefixItems"},
      {R"({"type": "array", "items": false, "minItems": 1})", "$.minItems"},
      {R"({"type": "array", "items": {"enum": [1, 1]}, "uniqueItems": true, "minItems": 2})", "$.minItems"},
      {R"({"type": "array", "items": {"type": "string", "pattern": "(?<=b)a"}})", "$.items.pattern"},
      {R"({"type": "array", "uniqueItems": true})", "$.uniqueItems"},
      {R"({"anyOf": [{"type": "null"}, {"type": "text"}]})", "$.anyOf[1].type"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "$.oneOf"},
      {R"({"oneOf": [{"properties": {"a": {"format": "date"}}}, {"properties": {"a": {"const": 2}}}]})", "$.oneOf"},
  });
}

}  // namespace
}  // namespace dllm::constrain
