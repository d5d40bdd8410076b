#include "constrain/json_schema.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "constrain/dfa.h"
#include "constrain/json_text.h"
#include "constrain/testing/validate.h"

namespace dllm::constrain {
namespace {

using Json = nlohmann::ordered_json;

Dfa schema_dfa(const std::string& schema) {
  auto pattern = parse_schema(schema);
  EXPECT_TRUE(pattern.has_value()) << schema << ": " << (pattern ? "" : pattern.error().message());
  auto dfa = compile(**pattern);
  EXPECT_TRUE(dfa.has_value()) << schema << ": " << (dfa ? "" : dfa.error().message());
  return *std::move(dfa);
}

/// A text that the automaton accepts: random bytes for a while, then the shortest way to the end.
std::string random_match(const Dfa& dfa, std::mt19937& rng) {
  std::vector<std::int32_t> far(static_cast<std::size_t>(dfa.states), 1 << 20);
  const auto distance = [&](std::int32_t s) -> std::int32_t& { return far[static_cast<std::size_t>(s)]; };
  for (bool changed = true; changed;) {
    changed = false;
    for (std::int32_t s = 0; s < dfa.states; ++s) {
      std::int32_t best = dfa.accepting[static_cast<std::size_t>(s)] != 0 ? 0 : distance(s);
      for (int b = 0; b < 256; ++b)
        if (const auto to = dfa.step(s, static_cast<std::uint8_t>(b)); to != Dfa::kDead)
          best = std::min(best, distance(to) + 1);
      changed = changed || best < distance(s);
      distance(s) = best;
    }
  }
  std::string text;
  std::int32_t state = 0;
  for (std::size_t budget = rng() % 60;;) {
    if (distance(state) == 0 && (text.size() >= budget || rng() % 8 == 0)) return text;
    std::vector<std::uint8_t> ways;
    for (int b = 0; b < 256; ++b)
      if (const auto to = dfa.step(state, static_cast<std::uint8_t>(b));
          to != Dfa::kDead && (text.size() < budget || distance(to) < distance(state)))
        ways.push_back(static_cast<std::uint8_t>(b));
    if (ways.empty()) return text;
    // Letters are many: what ends or structures a text must get its turn.
    std::vector<std::uint8_t> special;
    for (const std::uint8_t b : ways)
      if (std::string_view("\"\\,:[]{}").find(static_cast<char>(b)) != std::string_view::npos) special.push_back(b);
    const auto& from = !special.empty() && rng() % 3 == 0 ? special : ways;
    const std::uint8_t byte = from[rng() % from.size()];
    text += static_cast<char>(byte);
    state = dfa.step(state, byte);
  }
}

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
};

TEST(JsonSchema, WhatTheAutomatonAcceptsParsesAndValidates) {
  std::mt19937 rng(3);
  for (const char* text : kSchemas) {
    const Dfa dfa = schema_dfa(text);
    const Json schema = Json::parse(text);
    for (int i = 0; i < 150; ++i) {
      const std::string answer = random_match(dfa, rng);
      ASSERT_TRUE(dfa.matches(answer));
      const Json value = Json::parse(answer, nullptr, /*allow_exceptions=*/false);
      ASSERT_FALSE(value.is_discarded()) << text << "\n" << answer;
      EXPECT_TRUE(test::validates(value, schema, schema)) << text << "\n" << answer;
    }
  }
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

TEST(JsonSchema, IntegersWithinBoundsByEnumeration) {
  std::mt19937 rng(5);
  for (int i = 0; i < 60; ++i) {
    const auto low = static_cast<std::int64_t>(rng() % 2500) - 1200,
               high = low + static_cast<std::int64_t>(rng() % 1500);
    const auto dfa = compile(*json_integer(low, high));
    ASSERT_TRUE(dfa.has_value());
    for (std::int64_t n = low - 30; n <= high + 30; ++n)
      EXPECT_EQ(dfa->matches(std::to_string(n)), n >= low && n <= high) << low << " " << high << " " << n;
    EXPECT_FALSE(dfa->matches("-0"));
  }
}

TEST(JsonSchema, ManyOptionalPropertiesStaySmall) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 100; ++i) schema["properties"]["p" + std::to_string(i)] = {{"type", "string"}};
  const Dfa dfa = schema_dfa(schema.dump());
  EXPECT_LT(dfa.states, 4000);
  EXPECT_TRUE(dfa.matches(R"({"p3": "", "p42": "x", "p99": "y"})"));
  EXPECT_FALSE(dfa.matches(R"({"p42": "", "p3": "x"})"));
}

/// Every integer near the bounds and near the powers of ten is accepted exactly if it is within them.
TEST(JsonSchema, IntegersWithinAnyBounds) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      // schema, the least integer, the greatest one
      {R"({"type": "integer", "minimum": 0})", "0", "999999999999999"},
      {R"({"type": "integer", "maximum": 100})", "-999999999999999", "100"},
      {R"({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991})", "-9007199254740991",
       "9007199254740991"},
      {R"({"type": "integer", "minimum": 1234567890123, "maximum": 9876543210987})", "1234567890123", "9876543210987"},
      {R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})",
       "-9223372036854775808", "9223372036854775807"},
      {R"({"type": "integer", "minimum": -1e30, "maximum": 18446744073709551615})", "-9223372036854775808",
       "9223372036854775807"},
      {R"({"type": "integer", "exclusiveMinimum": -0.5, "exclusiveMaximum": 7})", "0", "6"},
      {R"({"type": "integer", "minimum": 2, "exclusiveMinimum": 2, "maximum": 10.9})", "3", "10"},
      {R"({"type": "integer", "minimum": -20, "maximum": -3})", "-20", "-3"},
  };
  for (const auto& [schema, least, greatest] : cases) {
    const auto pattern = parse_schema(schema);
    ASSERT_TRUE(pattern) << schema << pattern.error().message();
    const auto dfa = compile(**pattern);
    ASSERT_TRUE(dfa) << schema;
    EXPECT_LT(dfa->states, 150) << schema;
    const auto low = static_cast<long double>(std::stoll(least)), high = static_cast<long double>(std::stoll(greatest));
    for (const std::int64_t middle : {std::stoll(least), std::stoll(greatest), 0LL, 1000LL, -1000LL, 999999999999999LL})
      for (int d = -12; d <= 12; ++d) {
        const long double value = static_cast<long double>(middle) + d;
        if (std::fabs(value) > 9.2e18L) continue;
        const std::string text = std::to_string(static_cast<std::int64_t>(value));
        EXPECT_EQ(dfa->matches(text), value >= low && value <= high) << schema << " " << text;
      }
    EXPECT_TRUE(dfa->matches(least) && dfa->matches(greatest)) << schema;
    EXPECT_FALSE(dfa->matches("9223372036854775808") || dfa->matches("-9223372036854775809")) << schema;
    EXPECT_FALSE(dfa->matches("01") || dfa->matches("-0") || dfa->matches("-") || dfa->matches("")) << schema;
  }
}

TEST(JsonSchema, ExtensionsAndForeignKeywordsSayNothing) {
  for (const char* schema :
       {R"({"type": "integer", "x-order": 1, "maximum": 9, "minimum": 0, "foo": {"bar": []}, "minLength": 4})",
        R"({"type": "integer", "enum": ["a", 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]})",
        R"({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "integer", "minimum": -0.5, "maximum": 9.5}}})"}) {
    const auto pattern = parse_schema(schema);
    ASSERT_TRUE(pattern) << schema << pattern.error().message();
    const auto dfa = compile(**pattern);
    ASSERT_TRUE(dfa) << schema;
    EXPECT_TRUE(dfa->matches("7")) << schema;
    EXPECT_FALSE(dfa->matches("10") || dfa->matches("\"a\"")) << schema;
  }
}

TEST(JsonSchema, ErrorsNameThePath) {
  const std::tuple<const char*, const char*> cases[] = {
      {"{", "$"},
      {"[]", "$"},
      {R"({"type": "object", "type": "string"})", "$.type"},
      {"{}", "$"},
      {R"({"type": "strin"})", "$.type"},
      {R"({"type": ["string", 3]})", "$.type[1]"},
      {R"({"type": "integer", "multipleOf": 3})", "$.multipleOf"},
      {R"({"type": "number", "minimum": 3})", "$.minimum"},
      {R"({"properties": {"a": {"type": "string", "format": "date"}}})", "$.properties.a.format"},
      {R"({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a", "b"]})", "$.required[1]"},
      {R"({"type": "object", "additionalProperties": {"type": "null"}})", "$.additionalProperties"},
      {R"({"type": "object", "patternProperties": {}})", "$.patternProperties"},
      {R"({"type": "array", "items": {"type": "string", "pattern": "(?=b)a"}})", "$.items.pattern"},
      {R"({"type": "string", "minLength": 3, "maxLength": 2})", "$.maxLength"},
      {R"({"type": "string", "minLength": -1})", "$.minLength"},
      {R"({"type": "string", "pattern": "a", "minLength": 1})", "$.minLength"},
      {R"({"type": "array", "uniqueItems": true})", "$.uniqueItems"},
      {R"({"anyOf": [{"type": "null"}, {"type": "text"}]})", "$.anyOf[1].type"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "$.oneOf"},
      {R"({"oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}}}]})", "$.oneOf"},
      {R"({"allOf": [{"type": "null"}]})", "$.allOf"},
      {R"({"enum": []})", "$.enum"},
      {R"({"type": "string", "enum": [1, 2]})", "$.enum"},
      {R"({"type": "string", "const": 2})", "$.const"},
      {R"({"$ref": "#/$defs/%zz", "$defs": {"b": {}}})", "$.$ref"},
      {R"({"$ref": "#/$defs/a", "$defs": {"b": {}}})", "$.$ref"},
      {R"({"$ref": "http://example.org/a"})", "$.$ref"},
      {R"({"type": "array", "items": {"$ref": "#"}})", "$.items.$ref"},
      {R"({"type": "integer", "minimum": 4, "maximum": 3})", "$"},
      {R"({"type": "integer", "minimum": 1.2, "maximum": 1.8})", "$"},
      {R"({"type": "integer", "minimum": "1"})", "$.minimum"},
      {R"({"type": "integer", "minimum": 1e19})", "$.minimum"},
      {R"({"type": "integer", "exclusiveMaximum": -9223372036854775808})", "$.exclusiveMaximum"},
  };
  for (const auto& [schema, where] : cases) {
    const auto parsed = parse_schema(schema);
    ASSERT_FALSE(parsed.has_value()) << schema;
    EXPECT_EQ(parsed.error().where, where) << parsed.error().message();
  }
  std::string deep = R"({"type": "null"})";
  for (int i = 0; i < 100; ++i) deep = R"({"items": )" + deep + "}";
  EXPECT_FALSE(parse_schema(deep).has_value());
}

}  // namespace
}  // namespace dllm::constrain
