// Parsing of requests and answers; the server itself is tested from outside (src/app/serve_test.py,
// serve_limits_test.py).
#include <gtest/gtest.h>

#include "serve/errors.h"
#include "serve/json.h"
#include "serve/tools.h"

namespace dllm::serve {
namespace {

Tools weather() {
  Tools tools;
  tools.list = Json::parse(R"([{"type": "function", "function": {"name": "weather"}},
                               {"type": "function", "function": {"name": "time"}}])");
  return tools;
}

TEST(Tools, CallsAreRead) {
  const ToolAnswer answer = parse_tool_calls(
      "Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"</b>\"}}\n</tool_call>\n"
      "<tool_call>{\"name\": \"time\"}</tool_call> \n",
      weather());
  EXPECT_EQ(answer.text, "Let me look.");
  ASSERT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.calls[0].name, "weather");
  EXPECT_EQ(answer.calls[0].arguments, R"({"town":"</b>"})");
  EXPECT_EQ(answer.calls[1].arguments, "{}");
  Tools single = weather();
  single.parallel = false;
  EXPECT_EQ(
      parse_tool_calls("<tool_call>{\"name\": \"time\"}</tool_call><tool_call>{\"name\": \"time\"}</tool_call>", single)
          .calls.size(),
      1u);
}

TEST(Tools, WhatIsNoCallIsText) {
  for (const char* text : {"no call", "<tool_call>", "<tool_call>{\"name\": \"weather\"}", "<tool_call>x</tool_call>",
                           "<tool_call>{\"name\": \"unknown\"}</tool_call>", "<tool_call>[]</tool_call>",
                           "<tool_call>{\"name\": \"time\", \"arguments\": 3}</tool_call>",
                           "<tool_call>{\"name\": \"time\"}</tool_call> and more", ""}) {
    const ToolAnswer answer = parse_tool_calls(text, weather());
    EXPECT_TRUE(answer.calls.empty()) << text;
    EXPECT_EQ(answer.text, text);
  }
}

/// A stream that sends text_before_calls() of each prefix never sends text that turns out to be a call.
TEST(Tools, StreamsShowNoPartOfACall) {
  const std::string whole = "A < b\n<tool_call>{\"name\": \"time\"}</tool_call>";
  const ToolAnswer answer = parse_tool_calls(whole, weather());
  std::size_t shown = 0;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const std::size_t now = text_before_calls(std::string_view(whole).substr(0, size));
    EXPECT_LE(now, answer.text.size());
    shown = std::max(shown, now);
  }
  EXPECT_EQ(whole.substr(0, shown), answer.text);
}

TEST(Json, DeepAndDamagedBodiesAreRefused) {
  EXPECT_TRUE(parse_body(R"({"a": "[[[[\"{{{"})"));
  EXPECT_FALSE(parse_body(std::string(100000, '[')));
  EXPECT_FALSE(parse_body("{\"a\":" + std::string(70, '[') + std::string(70, ']') + "}"));
  EXPECT_FALSE(parse_body("3"));
  EXPECT_FALSE(parse_body("{\"a\": \"\xff\"}"));
  const Json json = Json::parse(R"({"n": 3, "big": 1e30, "s": "x", "none": null})");
  Fields fields(json);
  EXPECT_EQ(**fields.integer("n", 0, 5), 3);
  EXPECT_FALSE(fields.integer("n", 0, 2));
  EXPECT_FALSE(fields.integer("big", 0, 5));
  EXPECT_EQ(fields.rest(), std::vector<std::string>{"s"});
}

TEST(Errors, OptionsAreNamedByTheirFields) {
  EXPECT_EQ(in_fields("give --top-p, not --temp (see -n)"), "give top_p, not temperature (see length)");
  EXPECT_EQ(in_fields("a well-known --unknown thing - yes"), "a well-known --unknown thing - yes");
  EXPECT_EQ(api_error({ErrorCode::kUsage, "x", "--threshold", ""}).param, "threshold");
  EXPECT_EQ(api_error({ErrorCode::kResource, "x", "queue", ""}).status, 429);
  EXPECT_EQ(error_json({400, "m", "", ""}, Dialect::kAnthropic)["type"], "error");
}

}  // namespace
}  // namespace dllm::serve
