#include "format/strict_json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace dllm {
namespace {

using Json = nlohmann::json;

Expected<Json> parsed(std::string_view text, JsonNumbers numbers = JsonNumbers::kJson) {
  return parse_strict_json(std::as_bytes(std::span(text)), "test.json", 8, numbers);
}

TEST(StrictJson, BuildsWhatTheLibraryBuilds) {
  for (const char* text : {"{}", "[]", "3", "-7", "1.5e3", "\"a\\u00e9\\n\"", "null", "true",
                           R"({"a":{"b":[1,[2,{"c":null}],{}],"d":-0.5},"e":[[],{}],"f":"g","":18446744073709551615})",
                           R"([{"a":1},{"a":2},{"a":{"a":{"a":[]}}}])"}) {
    const auto json = parsed(text);
    ASSERT_TRUE(json) << text;
    EXPECT_EQ(*json, Json::parse(text)) << text;
    EXPECT_EQ(json->dump(), Json::parse(text).dump()) << text;
  }
}

TEST(StrictJson, SaysWhatIsWrong) {
  for (const auto& [text, reason] : {std::pair<std::string, std::string>{"", "not valid JSON"},
                                     {"{\"a\":1", "not valid JSON"},
                                     {"{\"a\":1}x", "not valid JSON"},
                                     {"{\"a\":1,}", "not valid JSON"},
                                     {"[1e999]", "not valid JSON"},
                                     {"\"\xff\"", "not valid JSON"},
                                     {"[NaN]", "not valid JSON"},
                                     {"[Infinity]", "not valid JSON"},
                                     {R"({"a":1,"b":2,"a":3})", "'a' occurs twice"},
                                     {R"([{"x":{"b":1,"b":1}}])", "'b' occurs twice"},
                                     {std::string(17, '['), "nested more than 16 deep"},
                                     {std::string(1'000'000, '['), "nested more than 16 deep"}}) {
    const auto json = parsed(text);
    ASSERT_FALSE(json) << text.substr(0, 40);
    EXPECT_EQ(json.error().code, ErrorCode::kInvalidFile);
    EXPECT_NE(json.error().what.find(reason), std::string::npos) << json.error().what;
    EXPECT_TRUE(json.error().where.starts_with("test.json, offset 0x8")) << json.error().where;
  }
  EXPECT_TRUE(parsed(std::string(16, '[') + std::string(16, ']')));
}

TEST(StrictJson, ReadsTheNumbersThatPythonWrites) {
  const auto json = parsed(R"({"a":[0.0,Infinity,-Infinity],"b":NaN,"c":-1,"NaN":"Infinity \" -Infinity\\","d":"x"})",
                           JsonNumbers::kPython);
  ASSERT_TRUE(json) << json.error().message();
  EXPECT_EQ((*json)["a"][1].get<double>(), HUGE_VAL);
  EXPECT_EQ((*json)["a"][2].get<double>(), -HUGE_VAL);
  EXPECT_TRUE(std::isnan((*json)["b"].get<double>()));
  EXPECT_EQ((*json)["c"], -1);
  EXPECT_EQ((*json)["NaN"], "Infinity \" -Infinity\\");
  for (const char* text : {"[Inf]", "[nan]", "[+Infinity]", "[NaNs]", "[-NaN]", "NaN Infinity", "[\"Infinity]"})
    EXPECT_FALSE(parsed(text, JsonNumbers::kPython)) << text;
}

/// With a parser that takes time for every pair of members, these take minutes.
TEST(StrictJson, ManyMembersTakeLittle) {
  std::string flat = "{", nested = "{";
  for (int i = 0; i < 300'000; ++i) {
    flat += fmt::format("{}\"k{}\":{}", i == 0 ? "" : ",", i, i);
    nested += fmt::format(R"({}"t{}":{{"dtype":"F32","shape":[1],"data_offsets":[{},{}]}})", i == 0 ? "" : ",", i,
                          4 * i, 4 * i + 4);
  }
  for (const std::string& text : {flat + "}", nested + "}"}) {
    const auto json = parsed(text);
    ASSERT_TRUE(json);
    EXPECT_EQ(json->size(), 300'000u);
  }
  const auto twice = parsed(flat + ",\"k7\":1}");
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().what.find("'k7' occurs twice"), std::string::npos);
}

}  // namespace
}  // namespace dllm
