// Item files in the formats of published benchmarks (small invented items).
#include "eval/eval_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/testing/fuzz_replay.h"
#include "eval/testing/fuzz_entry.h"

namespace dllm {
namespace {

EvalSet parsed(std::string_view text, std::string_view format = {}) {
  auto set = parse_eval_set(text, "t", format);
  EXPECT_TRUE(set) << set.error().message();
  return set ? *std::move(set) : EvalSet{};
}

Verdict judged(const EvalSet& set, std::string_view text, std::size_t index = 0) {
  auto verdict = set.kind->judge(set.items[index], text, {});
  EXPECT_TRUE(verdict) << verdict.error().message();
  return verdict ? *verdict : Verdict{};
}

TEST(EvalSet, ReadsLinesAndSkipsEmptyOnes) {
  const EvalSet set =
      parsed("{\"task\":\"a\",\"prompt\":\"p\",\"answer\":\"x\"}\n\n \r\n{\"prompt\":\"q\",\"answer\":\"y\"}");
  EXPECT_EQ(set.kind->name, "exact");
  ASSERT_EQ(set.items.size(), 2u);
  EXPECT_EQ(set.items[0].task, "a");
  EXPECT_EQ(set.items[1].task, "exact");
  EXPECT_EQ(set.items[1].line, 4);
}

TEST(EvalSet, ReadsArrays) {
  const EvalSet set = parsed(" [ {\"prompt\":\"p\",\"answer\":\"x\"},\n {\"prompt\":\"q\",\"answer\":\"y\"} ]");
  ASSERT_EQ(set.items.size(), 2u);
  EXPECT_EQ(set.items[1].line, 2);
  EXPECT_EQ(parse_eval_set("[{\"prompt\":\"p\",\"answer\":\"x\"}, 3]", "t").error().where, "t, line 1");
}

TEST(EvalSet, ErrorsNameTheLineAndTheField) {
  const std::string good = "{\"prompt\":\"p\",\"answer\":\"x\"}\n";
  for (const auto& [bad, field] : {std::pair{"{", ""},
                                   {"[1]", ""},
                                   {"{\"prompt\":\"p\"}", ", answer"},
                                   {"{\"prompt\":1,\"answer\":\"x\"}", ", prompt"},
                                   {"{\"task\":null,\"prompt\":\"p\",\"answer\":\"x\"}", ", task"},
                                   {"\xff", ""},
                                   {"{\"prompt\":\"p\",\"answer\":\"x\",\"extra\":1}", ", extra"}}) {
    const auto set = parse_eval_set(good + good + bad, "file.jsonl");
    ASSERT_FALSE(set) << bad;
    EXPECT_EQ(set.error().code, ErrorCode::kInvalidFile);
    EXPECT_EQ(set.error().where, std::string("file.jsonl, line 3") + field);
  }
  EXPECT_FALSE(parse_eval_set("\n\n", "t"));
  EXPECT_FALSE(parse_eval_set("[]", "t"));
  EXPECT_FALSE(read_eval_set("/nonexistent/file.jsonl"));
  EXPECT_FALSE(read_eval_set("/"));
}

TEST(EvalSet, NamesUnknownFieldsAndFormats) {
  const auto extra = parse_eval_set("{\"question\":\"q\",\"answer\":\"#### 1\",\"hint\":\"h\"}", "t");
  ASSERT_FALSE(extra);
  EXPECT_NE(extra.error().message().find("unknown key 'hint' of gsm8k items"), std::string::npos);
  const auto unknown = parse_eval_set("{\"q\":\"q\"}", "t");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message().find("no known kind of item has the fields q"), std::string::npos);
  EXPECT_EQ(parse_eval_set("{}", "t", "gsm9k").error().code, ErrorCode::kUsage);
}

TEST(EvalSet, ShotsStandInFrontOfEveryPrompt) {
  EvalSet set =
      parsed("{\"question\":\"One?\",\"answer\":\"It is 1.\\n#### 1\"}\n{\"question\":\"Two?\",\"answer\":\"#### 2\"}");
  EXPECT_FALSE(use_shots(set, 2));
  ASSERT_TRUE(use_shots(set, 1));
  ASSERT_EQ(set.items.size(), 1u);
  EXPECT_EQ(set.items[0].prompt, "Question: One?\nAnswer: It is 1.\n#### 1\n\nQuestion: Two?\nAnswer:");
}

TEST(TaskKinds, Number) {
  const EvalSet set = parsed("{\"prompt\":\"p\",\"answer\":\"3+4=7\\n#### 7\"}", "number");
  EXPECT_TRUE(judged(set, "It is 7.").correct);
  EXPECT_FALSE(*judged(set, "It is 7.").strict);
  EXPECT_TRUE(*judged(set, "3+4=7\n#### 7").strict);
  EXPECT_FALSE(judged(set, "8").correct);
  EXPECT_FALSE(judged(set, "none").correct);
}

TEST(TaskKinds, Gsm8k) {
  const EvalSet set = parsed("{\"question\":\"How many?\",\"answer\":\"a <<3*4=12>>12\\n#### 1,200\"}");
  EXPECT_EQ(set.kind->name, "gsm8k");
  EXPECT_EQ(set.items[0].answer, "1200");
  const Verdict marked = judged(set, "First 12.\n#### 1200");
  EXPECT_TRUE(marked.correct && *marked.strict);
  const Verdict said = judged(set, "That is $1,200.");
  EXPECT_TRUE(said.correct && !*said.strict);
  EXPECT_TRUE(judged(set, "So 1200\n\nQuestion: What is 5?\nAnswer: 5").correct);
  EXPECT_FALSE(judged(set, "1200 or 3").correct);
  EXPECT_FALSE(parse_eval_set("{\"question\":\"q\",\"answer\":\"1\"}", "t"));
}

TEST(TaskKinds, Svamp) {
  const EvalSet set = parsed(
      "[{\"ID\":\"chal-1\",\"Body\":\"He has 76.\",\"Question\":\"How many?\",\"Equation\":\"( 76.0 "
      ")\",\"Answer\":51.0,"
      "\"Type\":\"Subtraction\"}]");
  EXPECT_EQ(set.kind->name, "svamp");
  EXPECT_EQ(set.items[0].prompt, "He has 76. How many?");
  EXPECT_TRUE(judged(set, "76 - 25 = 51").correct);
  EXPECT_TRUE(judged(set, "51.0").correct);
  EXPECT_FALSE(judged(set, "51, or 52").correct);
}

TEST(TaskKinds, Adapters) {
  const EvalSet set = parsed(
      "[{\"instruction\":\"Please choose: Why?\\n\\nAnswer1: a Answer2: b\\n\\nAnswer format: "
      "answer1/answer2\",\"input\":"
      "\"\",\"output\":\"the correct answer is answer2\",\"answer\":\"answer2\"},"
      "{\"instruction\":\"Is it?\\n\\nAnswer format: "
      "true/false\",\"input\":\"\",\"output\":\"o\",\"answer\":\"true\"}]");
  EXPECT_EQ(set.kind->name, "adapters");
  EXPECT_EQ(set.items[0].label, 1);
  EXPECT_EQ(set.items[0].choices[1], "the correct answer is answer2");
  EXPECT_TRUE(judged(set, "The correct answer is Answer2.").correct);
  EXPECT_FALSE(judged(set, "answer1, not answer2").correct);
  EXPECT_TRUE(judged(set, "True", 1).correct);
  EXPECT_FALSE(parse_eval_set("{\"instruction\":\"no options\",\"answer\":\"x\"}", "t"));
  EXPECT_FALSE(parse_eval_set("{\"instruction\":\"Answer format: a/b\",\"answer\":\"c\"}", "t"));
}

TEST(TaskKinds, Hellaswag) {
  const EvalSet set = parsed(
      "{\"ind\":4,\"activity_label\":\"Cleaning\",\"ctx_a\":\"[header] How to clean [title] Take a  "
      "rag.\",\"ctx_b\":\"the "
      "Man\",\"ctx\":\"c\",\"split\":\"val\",\"split_type\":\"indomain\",\"label\":1,\"endings\":[\"runs.\",\"wipes "
      "[step] "
      "it.\"],\"source_id\":\"s\"}");
  EXPECT_EQ(set.kind->name, "hellaswag");
  EXPECT_EQ(set.items[0].prompt, "Cleaning: How to clean. Take a rag. The man");
  EXPECT_EQ(set.items[0].choices[1], "wipes it.");
  EXPECT_EQ(set.kind->scoring, Scoring::kChoices);
}

TEST(TaskKinds, Cruxeval) {
  const EvalSet set = parsed(
      "{\"code\":\"def f(a):\\n    return a\",\"input\":\"[1, 'x']\",\"output\":\"[1, 'x']\",\"id\":\"sample_0\"}");
  EXPECT_EQ(set.kind->name, "cruxeval");
  for (const char* right : {"[1, 'x']", " [1,\"x\"]\nbecause", "assert f([1, 'x']) == [1, 'x']",
                            "```python\nassert f([1, 'x']) == [1, \"x\"]\n```", "[ANSWER][1, 'x'][/ANSWER]"})
    EXPECT_TRUE(judged(set, right).correct) << right;
  for (const char* wrong : {"(1, 'x')", "[1, 'y']", "", "the list [1, 'x']"})
    EXPECT_FALSE(judged(set, wrong).correct) << wrong;
}

TEST(TaskKinds, Humaneval) {
  const EvalSet set = parsed(
      "{\"task_id\":\"HumanEval/0\",\"prompt\":\"import math\\n\\ndef root(x):\\n    \\\"\\\"\\\" Root. "
      "\\\"\\\"\\\"\\n\","
      "\"entry_point\":\"root\",\"canonical_solution\":\"    return math.sqrt(x)\\n\",\"test\":\"def "
      "check(candidate):\\n"
      "    assert candidate(9) == 3\\n\"}");
  EXPECT_EQ(set.kind->name, "humaneval");
  EXPECT_EQ(set.kind->judge(set.items[0], "x", {}).error().code, ErrorCode::kUsage);
  const JudgeOptions allowed = {.run_code = RunCode::kSandboxed, .seconds = 20};
  const auto run = [&](std::string_view text) { return set.kind->judge(set.items[0], text, allowed); };
  if (const auto first = run(""); !first) GTEST_SKIP() << first.error().message();
  for (const char* right : {"    return math.sqrt(x)\n", "    return math.sqrt(x)\n\nprint('more')\nassert False",
                            "Sure.\n```python\ndef root(x):\n    return math.sqrt(x)\n```"})
    EXPECT_TRUE(run(right)->correct) << right << ": " << run(right)->note;
  const auto wrong = run("    return x");
  EXPECT_FALSE(wrong->correct);
  EXPECT_EQ(wrong->note, "AssertionError");
}

TEST(FuzzCorpus, EvalSet) { test::replay_corpus("eval_set", 100, fuzz_eval_set); }

TEST(TaskKinds, EveryKindIsComplete) {
  for (const TaskKind* kind : task_kinds()) {
    EXPECT_EQ(find_task_kind(kind->name), kind);
    EXPECT_NE(kind->read, nullptr) << kind->name;
    EXPECT_NE(kind->judge, nullptr) << kind->name;
    EXPECT_NE(std::find(kind->scorings.begin(), kind->scorings.end(), kind->scoring), kind->scorings.end());
  }
}

}  // namespace
}  // namespace dllm
