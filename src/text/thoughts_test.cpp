#include "text/thoughts.h"

#include <gtest/gtest.h>

#include "text/chat_template.h"

namespace dllm {
namespace {

using Kind = ThoughtFormat::Kind;

const ThoughtFormat kThink{.kind = Kind::kTags, .open = "<think>", .close = "</think>"};
const ThoughtFormat kGemma{.kind = Kind::kChannel, .open = "<|channel>", .close = "<channel|>"};
const ThoughtFormat kHarmony{.kind = Kind::kHarmony};

struct Case {
  std::string opening, answer, thoughts, text;
  std::size_t thought_bytes;
};

void check(const ThoughtFormat& format, const std::vector<Case>& cases, std::string_view calls = {}) {
  for (const Case& one : cases) {
    SCOPED_TRACE(one.opening + "|" + one.answer);
    const SplitAnswer whole = split_answer(format, one.opening, one.answer, /*complete=*/true, calls);
    EXPECT_EQ(whole.thoughts, one.thoughts);
    EXPECT_EQ(whole.text, one.text);
    EXPECT_EQ(whole.thought_bytes, one.thought_bytes);
    // A stream tells no more than what is true of the whole answer, and nothing that it takes back.
    SplitAnswer told;
    for (std::size_t size = 0; size <= one.answer.size(); ++size) {
      const SplitAnswer now =
          split_answer(format, one.opening, std::string_view(one.answer).substr(0, size), /*complete=*/false, calls);
      EXPECT_TRUE(whole.thoughts.starts_with(now.thoughts)) << now.thoughts;
      EXPECT_TRUE(whole.text.starts_with(now.text)) << now.text;
      EXPECT_TRUE(now.thoughts.starts_with(told.thoughts) && now.text.starts_with(told.text)) << size;
      EXPECT_TRUE(now.calls.empty());
      told = now;
    }
  }
}

TEST(Thoughts, Tags) {
  check(kThink, {{"", "<think>\nadd\nthem\n</think>\n\n21", "add\nthem", "21", 25},
                 {"", "\n<think>a</think>b", "a", "b", 17},
                 {"", "<think>\n\n</think>\n\n21\n", "", "21\n", 17},
                 {"", "21", "", "21", 0},
                 {"", " 21 < 22", "", " 21 < 22", 0},
                 {"", "<thin", "", "<thin", 0},
                 {"", "the tag <think>x</think>", "", "the tag <think>x</think>", 0},
                 {"", "<think>a</think>the tag <think>x</think>", "a", "the tag <think>x</think>", 16},
                 {"", "", "", "", 0}});
}

TEST(Thoughts, ThePromptMayOpenATag) {
  const std::string opening = "<|im_end|>\n<|im_start|>assistant\n<think>\n";
  check(kThink, {{opening, "add them\n</think>\n\n21", "add them", "21", 17},
                 {opening, "<think>\nadd\n</think>21", "add", "21", 20},
                 {opening, "never closed < \n", "never closed <", "", 16},
                 {opening, "</think>21", "", "21", 8},
                 {opening, "<", "<", "", 1},
                 {opening + "Well, ", "so</think>21", "so", "21", 10},
                 {opening + "\n</think>\n\n", "21", "", "21", 0},
                 {opening + "\n</think>\n\n", "\n<think>a</think>21", "a", "21", 17}});
}

TEST(Thoughts, ACallEndsAThoughtThatNothingCloses) {
  check(kThink,
        {{"<think>\n", "look <tool_call>{}</tool_call>", "look", "<tool_call>{}</tool_call>", 5},
         {"<think>\n", "a <tool_call>b</tool_call> c</think>d", "a <tool_call>b</tool_call> c", "d", 36},
         {"", "<think>a</think><tool_call>{}</tool_call>", "a", "<tool_call>{}</tool_call>", 16}},
        "<tool_call>");
  check(kThink, {{"<think>\n", "look <tool_call>{}", "look <tool_call>{}", "", 18}});
}

TEST(Thoughts, Channels) {
  const std::string turn = "<turn|>\n<|turn>model\n";
  check(kGemma, {{turn, "<|channel>thought\nadd\n<channel|>21", "add", "21", 32},
                 {turn, "\n<|channel>thought\nadd<channel|>\n21", "add", "21", 32},
                 {turn, "<|channel>thought\n<channel|>21", "", "21", 28},
                 {turn, "<|channel>thought\nadd", "add", "", 21},
                 {turn, "<|channel>thought", "", "", 17},
                 {turn, "<|channel>well", "well", "", 14},
                 {turn, "<|channel>no name <channel|>x", "no name", "x", 28},
                 {turn, "<|channel>final\n21<channel|>", "", "21", 0},
                 {turn, "<|channel>thought\na<channel|>b<|channel>thought\nc<channel|>d", "a\n\nc", "bd", 59},
                 {turn, "21 <|chan", "", "21 <|chan", 0},
                 {turn, "21 ", "", "21 ", 0},
                 {turn + "<|channel>thought\n<channel|>", "21", "", "21", 0},
                 {turn + "<|channel>thought\n", "add<channel|>21", "add", "21", 13}});
}

TEST(Thoughts, Harmony) {
  const std::string start = "<|end|><|start|>assistant";
  const std::string analysis = "<|channel|>analysis<|message|>add<|end|>";
  check(kHarmony,
        {{start, analysis + "<|start|>assistant<|channel|>final<|message|>21", "add", "21", 40},
         {start, analysis + "<|start|>assistant<|channel|>final<|message|>21<|return|>", "add", "21", 40},
         {start, analysis + "<|start|>assistant<|channel|>ana", "add", "", 40},
         {start, "<|channel|>analysis<|message|>add", "add", "", 33},
         {start, "<|channel|>final<|message|>21 <|e", "", "21 <|e", 0},
         {start, "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>x", "",
          "I look.\n\nx", 0},
         {start, "<|channel|>analysis<|message|>a<|channel|>analysis<|message|>b<|end|>", "a\n\nb", "", 69},
         {start, "21", "", "21", 0},
         {start + "<|channel|>analysis<|message|>", "add<|end|><|start|>assistant<|channel|>final<|message|>21", "add",
          "21", 10}});
  const std::string call =
      "<|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|call|>";
  for (const std::string& answer :
       {analysis + call, std::string("<|channel|>commentary to=functions.add<|message|>{\"a\": 1}"),
        std::string(" to=functions.add<|channel|>commentary<|message|>{\"a\": 1}<|call|>")}) {
    const SplitAnswer split = split_answer(kHarmony, start, answer, /*complete=*/true);
    ASSERT_EQ(split.calls.size(), 1u) << answer;
    EXPECT_EQ(split.calls[0].name + split.calls[0].arguments, "add{\"a\": 1}");
    EXPECT_EQ(split.text, "");
  }
  check(kHarmony, {{start, analysis + call, "add", "", 40}});
}

TEST(Thoughts, WithoutAFormatAllIsText) { check({}, {{"<think>\n", "<think>a</think>b", "", "<think>a</think>b", 0}}); }

TEST(Thoughts, TheFormatIsThatOfTheTemplatesMarkers) {
  EXPECT_EQ(thought_format("{{ m.content }}<|im_end|>").kind, Kind::kNone);
  EXPECT_EQ(thought_format("{{ content.split('</think>')[-1] }}").close, "</think>");
  EXPECT_EQ(thought_format("{{ '[THINK]' + m.reasoning_content + '[/THINK]' }}").open, "[THINK]");
  EXPECT_EQ(thought_format("{{ '<|think|>' }}{{ '<|channel>thought\\n<channel|>' }}").kind, Kind::kChannel);
  EXPECT_EQ(thought_format("<|start|>assistant<|channel|>analysis<|message|>").kind, Kind::kHarmony);
  EXPECT_TRUE(kThink.markers() == std::vector<std::string>({"<think>", "</think>"}));
  EXPECT_TRUE(opens_thought(kThink, "assistant\n<think>\n"));
  EXPECT_FALSE(opens_thought(kThink, "assistant\n<think></think>\n"));
  EXPECT_TRUE(opens_thought(kHarmony, "<|start|>assistant<|channel|>analysis<|message|>"));
  EXPECT_FALSE(opens_thought(kHarmony, "<|start|>assistant"));
  EXPECT_FALSE(opens_thought({}, "<think>"));
}

TEST(Thoughts, Expressions) {
  EXPECT_EQ(thoughts_regex(kThink, "<think>\n"), R"(([^<]|<+[^<\/])*<\/think>\n?\n?)");
  EXPECT_EQ(thoughts_regex(kThink, ""), R"((<think>([^<]|<+[^<\/])*<\/think>\n?\n?)?)");
  const std::string begun = "<|end|><|start|>assistant", final = R"(<\|channel\|>final<\|message\|>)";
  const std::string thought = R"(([^<]|<+[^<|])*<\|end\|><\|start\|>assistant)" + final;
  EXPECT_EQ(thoughts_regex(kHarmony, begun), R"((<\|channel\|>analysis<\|message\|>)" + thought + "|" + final + ")");
  EXPECT_EQ(thoughts_regex(kHarmony, begun + "<|channel|>"),
            R"((analysis<\|message\|>)" + thought + R"(|final<\|message\|>))");
  EXPECT_EQ(thoughts_regex(kHarmony, begun + "<|channel|>analysis<|message|>"), thought);
  EXPECT_EQ(thoughts_regex(kHarmony, begun + "<|channel|>final<|message|>"), "");
  EXPECT_EQ(header_regex(kHarmony, begun), final);
  EXPECT_EQ(header_regex(kHarmony, begun + "<|channel|>final<|message|>"), "");
  EXPECT_EQ(header_regex(kThink, ""), "");
}

TEST(TemplateInputs, AreWhatATemplateReads) {
  const auto read = template_inputs(
      "{% set ns = namespace(a=1) %}{% for m in messages %}{{ m.thinking | trim }}{% endfor %}{{ f(x, indent=2) }}"
      "{% if not thinking is defined %}{% set thinking = false %}{% endif %}{% set mode = 'off' %}{{ mode }} effort");
  EXPECT_TRUE(read.contains("messages") && read.contains("thinking") && read.contains("x"));
  for (const char* other : {"ns", "m", "trim", "indent", "defined", "mode", "effort", "a"})
    EXPECT_FALSE(read.contains(other)) << other;
  EXPECT_FALSE(template_inputs("{% set thinking = m.thinking %}{{ thinking }}").contains("thinking"));
  EXPECT_TRUE(template_inputs("{{ '").empty());
}

}  // namespace
}  // namespace dllm
