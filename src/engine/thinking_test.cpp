// What thoughts need of the engine: text before a structure, control tokens with a text, variables of templates.
#include <gtest/gtest.h>

#include <string_view>

#include "dllm/scheduler.h"

namespace dllm {
namespace {

class Thinking : public testing::Test {
 protected:
  ScheduledRequest request(const char* question, const std::vector<std::pair<const char*, const char*>>& options) {
    ScheduledRequest one;
    one.prompt = *model.apply_template({{"user", question}});
    for (const auto& [key, value] : options) EXPECT_TRUE(one.options.set(key, value)) << key;
    return one;
  }
  Generation answered(ScheduledRequest one) {
    Generation result;
    one.on_done = [&](Expected<Generation> answer) {
      ASSERT_TRUE(answer) << answer.error().message();
      result = *std::move(answer);
    };
    const auto scheduler = *Scheduler::create(model, {.parallel = 1});
    std::vector<ScheduledRequest> requests;
    requests.push_back(std::move(one));
    EXPECT_TRUE(scheduler->submit(std::move(requests)));
    while (scheduler->step()) continue;
    return result;
  }

  LanguageModel model = *LanguageModel::load("");
};

/// Thoughts come before a structure and leave room for it, whatever the bound and the canvas.
TEST_F(Thinking, TextBeforeAStructure) {
  using Options = std::vector<std::pair<const char*, const char*>>;
  for (const Options& options : {Options{{"length", "48"}}, Options{{"max_tokens", "40"}},
                                 Options{{"length", "32"}, {"max_tokens", "70"}}, Options{{"max_tokens", "200"}}}) {
    ScheduledRequest one = request("Solve 17+4.", options);
    ASSERT_TRUE(one.options.set("json_schema", R"({"enum": [17, 21]})"));
    one.preamble = "<t>([^<]|<+[^<\\/])*<\\/t>";
    const Generation answer = answered(std::move(one));
    EXPECT_EQ(answer.finish, FinishReason::kStop) << answer.text;
    EXPECT_TRUE(answer.text.starts_with("<t>")) << answer.text;
    EXPECT_TRUE(answer.text.ends_with("</t>17") || answer.text.ends_with("</t>21")) << answer.text;
    if (std::string_view(options.back().first) == "max_tokens") {
      EXPECT_LE(answer.stats.answer_tokens, std::stoi(options.back().second));
    }
  }
}

/// The texts of control tokens are in an answer only if they are asked for.
TEST_F(Thinking, ShownControlTokens) {
  const std::int32_t header = model.tokenize("<|start_header_id|>", /*special=*/true)->front();
  const std::string bias = std::to_string(header) + "+100";
  for (const bool shown : {false, true}) {
    ScheduledRequest one = request("x", {{"length", "3"}, {"logit_bias", bias.c_str()}});
    if (shown) one.shown = {header};
    EXPECT_EQ(answered(std::move(one)).text, shown ? "<|start_header_id|><|start_header_id|><|start_header_id|>" : "");
  }
}

TEST_F(Thinking, TemplateVariables) {
  ASSERT_TRUE(model.set_chat_template(
      "{{ messages[0].content }}{{ mood }}<|eot_id|>{% if add_generation_prompt %}A:{% endif %}"));
  EXPECT_FALSE(model.set_template_variables("[1]"));
  EXPECT_EQ(model.set_template_variables(R"({"messages": []})").error().where, "messages");
  EXPECT_EQ(model.set_template_variables(R"({"eos_token": ""})").error().where, "eos_token");
  ASSERT_TRUE(model.set_template_variables(R"({"mood": "glad"})"));
  const auto text = [&](const std::vector<std::int32_t>& ids) { return *model.detokenize(ids, /*special=*/true); };
  EXPECT_TRUE(text(*model.apply_template({{"user", "x"}})).ends_with("xglad<|eot_id|>A:"));
  const auto prompt = model.render_template(R"({"messages": [{"role": "user", "content": "x"}], "mood": "sad"})");
  ASSERT_TRUE(prompt);
  EXPECT_TRUE(text(prompt->ids).ends_with("xsad<|eot_id|>A:"));
  EXPECT_EQ(prompt->opening, "<|eot_id|>A:");
  ASSERT_TRUE(model.set_template_variables(R"({"add_generation_prompt": false})"));
  EXPECT_TRUE(text(*model.apply_template({{"user", "x"}})).ends_with("x<|eot_id|>"));
}

}  // namespace
}  // namespace dllm
