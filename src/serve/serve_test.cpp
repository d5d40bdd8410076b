// Parsing of requests and answers; the server itself is tested from outside (tests/app/serve_test.py,
// serve_limits_test.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/testing/fuzz_replay.h"
#include "serve/errors.h"
#include "serve/formats.h"
#include "serve/json.h"
#include "serve/testing/fuzz_entry.h"
#include "serve/tool_forms.h"

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

/// A call to format answers for; nothing is sent.
class Formats : public ::testing::Test {
 protected:
  static Generation answered(const std::string& text) {
    Generation answer;
    answer.text = text;
    answer.finish = FinishReason::kStop;
    return answer;
  }
  static constexpr const char* kCalls =
      "Let me see.\n<tool_call>{\"name\": \"weather\", \"arguments\": {\"town\": \"Ulm\"}}</tool_call>"
      "<tool_call>{\"name\": \"time\"}</tool_call>";

  /// The events of a stream of `answer`: of each its data.
  static std::vector<Json> events(AnswerFormat& format, const Generation& answer) {
    std::string text = format.opening(), shown;
    for (std::size_t size = 0; size <= answer.text.size(); ++size) {
      const bool complete = size == answer.text.size();
      const std::string now = format.shown(answer.text.substr(0, size), complete);
      if (now.size() > shown.size()) text += format.text(0, std::string_view(now).substr(shown.size()));
      shown = std::max(shown, now, [](const auto& a, const auto& b) { return a.size() < b.size(); });
    }
    text += format.closing(0, answer);  // first: events are numbered
    text += format.end({answer});
    std::vector<Json> list;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("data: ")) list.push_back(Json::parse(line.substr(6)));
    return list;
  }

  LanguageModel model_ = *LanguageModel::load("");
  std::unique_ptr<Scheduler> scheduler_ = *Scheduler::create(model_, SchedulerOptions());
  std::ostringstream log_;
  Api api_{model_, *scheduler_, ServerOptions(), log_};
  CallPtr call_ = std::make_shared<Call>(Call{api_, nullptr, "7", "", "/"});
};

TEST_F(Formats, AnthropicAnswersHaveBlocksOfTextAndCalls) {
  const auto format = messages_format(call_, 3, weather());
  const Json whole = format->whole({answered(kCalls)});
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  ASSERT_EQ(whole["content"].size(), 3u);
  EXPECT_EQ(whole["content"][0], Json::parse(R"({"type": "text", "text": "Let me see."})"));
  EXPECT_EQ(whole["content"][1]["name"], "weather");
  EXPECT_EQ(whole["content"][1]["input"], Json::parse(R"({"town": "Ulm"})"));
  EXPECT_EQ(whole["content"][2]["input"], Json::object());
  EXPECT_NE(whole["content"][1]["id"], whole["content"][2]["id"]);

  // The pieces of a stream make the same blocks.
  Json blocks = Json::array(), reason;
  std::string json;
  for (const Json& event : events(*messages_format(call_, 3, weather()), answered(kCalls))) {
    if (event["type"] == "content_block_start") {
      EXPECT_EQ(event["index"], blocks.size());
      blocks.push_back(event["content_block"]);
      json.clear();
    } else if (event["type"] == "content_block_delta") {
      const Json& delta = event["delta"];
      if (delta["type"] == "text_delta")
        blocks.back()["text"] = blocks.back()["text"].get<std::string>() + delta["text"].get<std::string>();
      else
        json += delta["partial_json"].get<std::string>();
    } else if (event["type"] == "content_block_stop" && !json.empty()) {
      blocks.back()["input"] = Json::parse(json);
    } else if (event["type"] == "message_delta") {
      reason = event["delta"]["stop_reason"];
    }
  }
  EXPECT_EQ(blocks, whole["content"]);
  EXPECT_EQ(reason, "tool_use");
}

TEST_F(Formats, ResponsesHaveItemsOfTextAndCalls) {
  const auto format = responses_format(call_, {}, weather());
  const Json whole = format->whole({answered(kCalls)});
  ASSERT_EQ(whole["output"].size(), 3u);
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "Let me see.");
  EXPECT_EQ(whole["output"][1]["type"], "function_call");
  EXPECT_EQ(whole["output"][1]["arguments"], R"({"town":"Ulm"})");

  Json items = Json::array(), end;
  int number = 0;
  for (const Json& event : events(*responses_format(call_, {}, weather()), answered(kCalls))) {
    EXPECT_EQ(event["sequence_number"], number++);
    if (event["type"] == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], items.size());
    } else if (event["type"] == "response.output_item.done") {
      items.push_back(event["item"]);
    } else if (event["type"] == "response.completed") {
      end = event["response"];
    }
  }
  EXPECT_EQ(items, whole["output"]);
  EXPECT_EQ(end["output"], whole["output"]);
}

/// An answer that is only a call has no block of text, in a stream neither.
TEST_F(Formats, CallsAloneHaveNoText) {
  const Generation answer = answered("<tool_call>{\"name\": \"time\"}</tool_call>");
  EXPECT_EQ(messages_format(call_, 3, weather())->whole({answer})["content"].size(), 1u);
  EXPECT_EQ(responses_format(call_, {}, weather())->whole({answer})["output"].size(), 1u);
  for (const Json& event : events(*messages_format(call_, 3, weather()), answer)) {
    if (event["type"] == "content_block_start") {
      EXPECT_EQ(event["content_block"]["type"], "tool_use");
    }
  }
  for (const Json& event : events(*responses_format(call_, {}, weather()), answer)) {
    if (event["type"] == "response.output_item.added") {
      EXPECT_EQ(event["item"]["type"], "function_call");
    }
  }
}

TEST(ToolForms, OtherApisSayTheSame) {
  const auto anthropic = messages_from_anthropic(Json::parse(R"([
    {"role": "user", "content": "Rain?"},
    {"role": "assistant", "content": [{"type": "text", "text": "Hm."},
                                      {"type": "tool_use", "id": "1", "name": "weather", "input": {"town": "Ulm"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "yes"}]},
                                 {"type": "text", "text": "So?"}]}])"),
                                                 "messages");
  ASSERT_TRUE(anthropic) << anthropic.error().message();
  const auto items = messages_from_response_items(Json::parse(R"([
    {"role": "user", "content": "Rain?"},
    {"type": "message", "id": "m", "role": "assistant", "content": "Hm."},
    {"type": "function_call", "id": "f", "call_id": "1", "name": "weather", "arguments": {"town": "Ulm"}},
    {"type": "function_call_output", "call_id": "1", "output": "yes"},
    {"role": "user", "content": "So?"}])"),
                                                  "input");
  ASSERT_TRUE(items) << items.error().message();
  EXPECT_EQ(*anthropic, *items);
  EXPECT_EQ((*items)[2], Json::parse(R"({"role": "tool", "tool_call_id": "1", "content": "yes"})"));

  const Json a = Json::parse(R"({"tools": [{"name": "weather", "description": "d", "input_schema": {"type": "object"}}],
                                 "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}})");
  const Json b = Json::parse(R"({"tools": [{"type": "function", "name": "weather", "description": "d",
                                            "parameters": {"type": "object"}}], "parallel_tool_calls": false})");
  Fields one(a), two(b);
  const auto first = read_anthropic_tools(one), second = read_response_tools(two);
  ASSERT_TRUE(first && *first && second && *second);
  EXPECT_EQ((*first)->list, (*second)->list);
  EXPECT_FALSE((*first)->parallel || (*second)->parallel);
}

TEST(ToolForms, ErrorsSayWhere) {
  const auto where = [](const auto& result) { return result ? "" : result.error().where; };
  EXPECT_EQ(
      where(messages_from_anthropic(
          Json::parse(R"([{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}])"), "messages")),
      "messages[0].content");
  EXPECT_EQ(where(messages_from_response_items(Json::parse(R"([{"type": "function_call", "name": "x"}])"), "input")),
            "input[0]");
  for (const char* choice : {R"("required")", R"({"type": "any"})", R"({"type": "function", "name": "x"})"}) {
    const Json body = Json::parse(std::string(R"({"tools": [], "tool_choice": )") + choice + "}");
    Fields one(body), two(body);
    EXPECT_EQ(where(read_anthropic_tools(one)), "tool_choice");
    EXPECT_EQ(where(read_response_tools(two)), "tool_choice");
  }
  const Json built_in = Json::parse(R"({"tools": [{"type": "web_search"}]})");
  Fields one(built_in), two(built_in);
  EXPECT_EQ(where(read_anthropic_tools(one)), "tools");
  EXPECT_EQ(where(read_response_tools(two)), "tools");
}

TEST(Json, ManyKeysAreRefusedAndManyFieldsFound) {
  const auto keys = [](std::size_t count) {
    std::string text = "{\"metadata\": {\"a\": 0";
    for (std::size_t i = 2; i < count; ++i) text += fmt::format(", \"key{}\": {}", i, i);
    return text + "}}";
  };
  ASSERT_TRUE(parse_body(keys(kMostKeys)));
  const auto refused = parse_body(keys(kMostKeys + 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, "metadata.key65535");
  EXPECT_NE(refused.error().what.find("more than 65536 keys"), std::string::npos);
  EXPECT_EQ(parse_body(R"({"messages": [{"role": "user", "role": "tool"}]})").error().where, "messages[0].role");

  // Few fields are searched one by one, many by halves.
  for (const int count : {1, 16, 17, 100}) {
    Json object = Json::object();
    for (int i = 0; i < count; ++i) object[fmt::format("f{}", i)] = i;
    object["none"] = nullptr;
    Fields fields(object);
    for (int i = 0; i < count; ++i) {
      ASSERT_NE(fields.find(fmt::format("f{}", i)), nullptr);
      EXPECT_EQ(*fields.find(fmt::format("f{}", i)), i);
    }
    EXPECT_EQ(fields.find("none"), nullptr);
    EXPECT_EQ(fields.find("g"), nullptr);
    EXPECT_TRUE(fields.done());
  }
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
  EXPECT_EQ(in_fields("give --top-p, not --temp (see -n, --canvas-length)"),
            "give top_p, not temperature (see max_tokens, length)");
  EXPECT_EQ(in_fields("a well-known --unknown thing - yes"), "a well-known --unknown thing - yes");
  EXPECT_EQ(api_error({ErrorCode::kUsage, "x", "--threshold", ""}).param, "threshold");
  EXPECT_EQ(api_error({ErrorCode::kResource, "x", "queue", ""}).status, 429);
  EXPECT_EQ(error_json({400, "m", "", ""}, Dialect::kAnthropic)["type"], "error");
}

TEST(Http, FuzzCorpus) { dllm::test::replay_corpus("http", 40, fuzz_http); }

}  // namespace
}  // namespace dllm::serve
