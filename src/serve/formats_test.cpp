// Answers in the forms of the APIs, whole and streamed.
#include <gtest/gtest.h>

#include <sstream>

#include "serve/formats.h"

namespace dllm::serve {
namespace {

Tools two_tools() {
  Tools tools;
  tools.list = Json::parse(R"([{"type": "function", "function": {"name": "weather"}},
                               {"type": "function", "function": {"name": "time"}}])");
  return tools;
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
    std::string text = format.opening();
    ShownAnswer shown;
    for (std::size_t size = 0; size <= answer.text.size(); ++size) {
      const bool complete = size == answer.text.size();
      const ShownAnswer now = format.shown(answer.text.substr(0, size), complete);
      if (now.thoughts.size() > shown.thoughts.size()) {
        text += format.thought(0, std::string_view(now.thoughts).substr(shown.thoughts.size()));
        shown.thoughts = now.thoughts;
      }
      if (now.text.size() > shown.text.size()) {
        text += format.text(0, std::string_view(now.text).substr(shown.text.size()));
        shown.text = now.text;
      }
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
  ServerOptions options_;
  std::unique_ptr<ServedModel> served_ = *ServedModel::create(borrowed(model_), options_, {}, "", {});
  Api api_{options_, nullptr};
  CallPtr call_ = [this] {
    auto call = std::make_shared<Call>(Call{api_, nullptr, "7", "", "/"});
    call->bound = served_.get();
    return call;
  }();
};

TEST_F(Formats, AnthropicAnswersHaveBlocksOfTextAndCalls) {
  const auto format = messages_format(call_, {.prompt_tokens = 3}, AnswerReader(two_tools()));
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
  for (const Json& event :
       events(*messages_format(call_, {.prompt_tokens = 3}, AnswerReader(two_tools())), answered(kCalls))) {
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
  const auto format = responses_format(call_, {}, AnswerReader(two_tools()));
  const Json whole = format->whole({answered(kCalls)});
  ASSERT_EQ(whole["output"].size(), 3u);
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "Let me see.");
  EXPECT_EQ(whole["output"][1]["type"], "function_call");
  EXPECT_EQ(whole["output"][1]["arguments"], R"({"town":"Ulm"})");

  Json items = Json::array(), end;
  int number = 0;
  for (const Json& event : events(*responses_format(call_, {}, AnswerReader(two_tools())), answered(kCalls))) {
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
  EXPECT_EQ(messages_format(call_, {.prompt_tokens = 3}, AnswerReader(two_tools()))->whole({answer})["content"].size(),
            1u);
  EXPECT_EQ(responses_format(call_, {}, AnswerReader(two_tools()))->whole({answer})["output"].size(), 1u);
  for (const Json& event : events(*messages_format(call_, {.prompt_tokens = 3}, AnswerReader(two_tools())), answer)) {
    if (event["type"] == "content_block_start") {
      EXPECT_EQ(event["content_block"]["type"], "tool_use");
    }
  }
  for (const Json& event : events(*responses_format(call_, {}, AnswerReader(two_tools())), answer)) {
    if (event["type"] == "response.output_item.added") {
      EXPECT_EQ(event["item"]["type"], "function_call");
    }
  }
}

/// The same with a template whose answers have thoughts.
class ThinkingFormats : public Formats {
 protected:
  static LanguageModel thinking_model() {
    LanguageModel model = *LanguageModel::load("");
    EXPECT_TRUE(
        model.set_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}{% if x %}</think>tool{% endif %}"));
    return model;
  }
  AnswerReader reader() { return {*thinking_served_, two_tools(), Thinking(), ""}; }

  LanguageModel thinking_ = thinking_model();
  std::unique_ptr<ServedModel> thinking_served_ = *ServedModel::create(borrowed(thinking_), options_, {}, "", {});
  const Generation answer_ = answered("<think>\nhm <tool_call>\n</think>\n" + std::string(kCalls));
};

TEST_F(ThinkingFormats, BlocksOfThoughtsTextAndCalls) {
  const Json whole = messages_format(call_, {}, reader())->whole({answer_});
  ASSERT_EQ(whole["content"].size(), 4u);
  EXPECT_EQ(whole["content"][0]["thinking"], "hm <tool_call>");
  EXPECT_EQ(whole["content"][1]["text"], "Let me see.");
  std::vector<std::string> begun;
  for (const Json& event : events(*messages_format(call_, {}, reader()), answer_))
    if (event["type"] == "content_block_start") {
      EXPECT_EQ(event["index"], begun.size());
      begun.push_back(event["content_block"]["type"]);
    }
  EXPECT_EQ(begun, (std::vector<std::string>{"thinking", "text", "tool_use", "tool_use"}));
}

TEST_F(ThinkingFormats, ItemsOfThoughtsTextAndCalls) {
  const Json whole = responses_format(call_, {}, reader())->whole({answer_});
  ASSERT_EQ(whole["output"].size(), 4u);
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "hm <tool_call>");
  Json items = Json::array();
  for (const Json& event : events(*responses_format(call_, {}, reader()), answer_)) {
    if (event["type"] == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], items.size());
    } else if (event["type"] == "response.output_item.done") {
      EXPECT_EQ(event["output_index"], items.size());
      items.push_back(event["item"]);
    }
  }
  EXPECT_EQ(items, whole["output"]);
}

/// A call in a thought that nothing closes, as some models write it.
TEST_F(ThinkingFormats, ACallEndsAThought) {
  const ParsedAnswer parsed = reader().parse("<think>I look. " + std::string(kCalls).substr(12));
  EXPECT_EQ(parsed.thoughts, "I look.");
  EXPECT_EQ(parsed.text, "");
  EXPECT_EQ(parsed.calls.size(), 2u);
  const ParsedAnswer open = reader().parse("<think>I look. <tool_call>{\"name\": \"none\"}</tool_call>");
  EXPECT_EQ(open.thoughts + "|" + open.text, "I look.|<tool_call>{\"name\": \"none\"}</tool_call>");
}

}  // namespace
}  // namespace dllm::serve
