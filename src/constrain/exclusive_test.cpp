#include "constrain/exclusive.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

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
  schema["oneOf"][119]["enum"].push_back(17.0);  // the first list has 17
  EXPECT_FALSE(schema_pattern(schema).has_value());
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

}  // namespace
}  // namespace dllm::constrain
