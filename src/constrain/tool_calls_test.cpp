#include "constrain/tool_calls.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "constrain/dfa.h"

namespace dllm::constrain {
namespace {

constexpr const char* kTools = R"({"tools": [
    {"name": "weather", "parameters": {"type": "object", "properties": {"town": {"type": "string"},
     "days": {"type": "integer", "minimum": 1, "maximum": 7}}, "required": ["town"]}},
    {"name": "time"}, {"name": "say \"x\"", "parameters": {}}], "several": SEVERAL})";

Dfa calls(bool several) {
  std::string text = kTools;
  text.replace(text.find("SEVERAL"), 7, several ? "true" : "false");
  const auto pattern = parse_tool_calls(text);
  EXPECT_TRUE(pattern) << (pattern ? "" : pattern.error().message());
  return *compile(**pattern);
}

bool accepts(const Dfa& dfa, std::string_view text) {
  std::int32_t state = 0;
  for (const char c : text) {
    state = dfa.step(state, static_cast<std::uint8_t>(c));
    if (state == Dfa::kDead) return false;
  }
  return dfa.accepting[static_cast<std::size_t>(state)] != 0;
}

std::string error_place(const std::string& text) {
  const auto pattern = parse_tool_calls(text);
  return pattern ? "no error" : pattern.error().where;
}

TEST(ToolCallPattern, IsTheFormatOfTheTemplates) {
  const Dfa one = calls(false), several = calls(true);
  const std::string weather = R"(<tool_call>{"name": "weather", "arguments": {"town": "Ulm", "days": 3}}</tool_call>)";
  const std::string time = "<tool_call>\n{\"name\":\"time\",\"arguments\":{\"a\":[1]}}\n</tool_call>";
  for (const std::string& text :
       {weather, time, std::string(R"(<tool_call>{"name": "say \"x\"", "arguments": {}}</tool_call>)")}) {
    EXPECT_TRUE(accepts(one, text)) << text;
    EXPECT_TRUE(accepts(several, text)) << text;
  }
  EXPECT_FALSE(accepts(one, weather + "\n" + time));
  EXPECT_TRUE(accepts(several, weather + "\n" + time + weather));
  for (const char* text :
       {"", "text", R"(<tool_call>{"name": "none", "arguments": {}}</tool_call>)",
        R"(<tool_call>{"name": "weather", "arguments": {}}</tool_call>)",
        R"(<tool_call>{"name": "weather", "arguments": {"town": "Ulm", "days": 8}}</tool_call>)",
        R"(<tool_call>{"name": "time", "arguments": []}</tool_call>)", R"(<tool_call>{"name": "time"}</tool_call>)",
        R"(<tool_call>{"name": "time", "arguments": {}})"})
    EXPECT_FALSE(accepts(several, text)) << text;
}

TEST(ToolCallPattern, ErrorsNameTheirPlace) {
  EXPECT_EQ(error_place("{"), "$");
  EXPECT_EQ(error_place(R"({"tools": []})"), "$.tools");
  EXPECT_EQ(error_place(R"({"tools": [{"name": "a"}], "others": 1})"), "$.others");
  EXPECT_EQ(error_place(R"({"tools": [{"name": "a"}], "several": 1})"), "$.several");
  EXPECT_EQ(error_place(R"({"tools": [{"name": "a"}, {"parameters": {}}]})"), "$.tools[1]");
  EXPECT_EQ(error_place(R"({"tools": [{"name": "a", "kind": 1}]})"), "$.tools[0].kind");
  EXPECT_EQ(error_place(R"({"tools": [{"name": "a", "parameters": {"type": "string"}}]})"),
            "$.tools[0].parameters.type");
  EXPECT_EQ(error_place(R"({"tools": [{"name": "a", "parameters": {"type": ["object", "null"]}}]})"),
            "$.tools[0].parameters.type");
  EXPECT_EQ(error_place(R"({"tools": [{"name": "a", "parameters": {"type": "object", "properties":
                        {"at": {"type": "integer", "multipleOf": 99991}}}}]})"),
            "$.tools[0].parameters.properties.at.multipleOf");
}

}  // namespace
}  // namespace dllm::constrain
