#include "constrain/exclusive.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "constrain/dfa.h"
#include "constrain/json_schema.h"

namespace dllm::constrain {
namespace {

using Json = nlohmann::ordered_json;

TEST(Exclusion, ManyLongListsAreComparedByHash) {
  Json schema = {{"oneOf", Json::array()}};
  for (int i = 0; i < 120; ++i) {
    Json values = Json::array();
    for (int j = 0; j < 80; ++j) values.push_back(i * 80 + j);
    schema["oneOf"].push_back({{"enum", values}});
  }
  EXPECT_TRUE(schema_pattern(schema).has_value());
  schema["oneOf"][119]["enum"].push_back(17.0);  // the first list has 17, so that it fits two
  const auto pattern = schema_pattern(schema);
  ASSERT_TRUE(pattern.has_value()) << pattern.error().message();
  const Dfa dfa = *compile(**pattern);
  EXPECT_TRUE(dfa.matches("16"));
  EXPECT_FALSE(dfa.matches("17"));
  EXPECT_FALSE(dfa.matches("17.0"));
}

/// The limits are counts, so that no clock is needed.
TEST(Exclusion, WorkIsLimited) {
  // Every pair differs in the last of 25 properties only.
  Json ladders = {{"oneOf", Json::array()}};
  for (int i = 0; i < 150; ++i) {
    Json one = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
    for (int j = 0; j < 25; ++j) {
      const std::string name = "p" + std::to_string(j);
      one["properties"][name] = {{"const", j == 24 ? i : 0}};
      one["required"].push_back(name);
    }
    ladders["oneOf"].push_back(one);
  }
  const auto ladder = schema_pattern(ladders);
  ASSERT_FALSE(ladder.has_value());
  EXPECT_NE(ladder.error().what.find("may fit schemas"), std::string::npos) << ladder.error().what;
}

/// Sets of a few integers are lists of different values; of many, or of others, they are refused.
TEST(FewValues, IntegersBetweenBounds) {
  const auto set_of = [](const std::string& items) {
    return parse_schema(R"({"type": "array", "uniqueItems": true, "items": )" + items + "}");
  };
  const Dfa dfa = *compile(**set_of(R"({"type": "integer", "exclusiveMinimum": 7, "maximum": 11.5})"));
  EXPECT_TRUE(dfa.matches("[11, 8]"));
  EXPECT_TRUE(dfa.matches("[8, 9, 10, 11]"));
  for (const char* text : {"[8, 8]", "[7]", "[12]", "[8.0]"}) EXPECT_FALSE(dfa.matches(text)) << text;
  EXPECT_TRUE(set_of(R"({"type": ["integer", "null"], "minimum": 1, "maximum": 63})"));
  for (const char* items :
       {R"({"type": "integer", "minimum": 0})", R"({"type": "integer", "minimum": 0, "maximum": 64})",
        R"({"type": "integer", "minimum": 0, "maximum": 9, "multipleOf": 2})",
        R"({"type": "number", "minimum": 1, "maximum": 2})",
        R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})",
        R"({"type": "string"})"}) {
    const auto refused = set_of(items);
    ASSERT_FALSE(refused.has_value()) << items;
    EXPECT_EQ(refused.error().where, "$.uniqueItems") << items;
  }
}

}  // namespace
}  // namespace dllm::constrain
