// The published benchmark files, if this machine has them: every item is read, and its own solution is judged right.
#include <gtest/gtest.h>

#include "eval/eval_set.h"
#include "eval/sandbox.h"
#include "shared_data.h"

namespace dllm {
namespace {

struct File {
  const char* path;
  const char* kind;
  std::size_t items;
};

EvalSet read(const std::string& shared, const File& file) {
  auto set = read_eval_set(shared + "/eval/" + file.path);
  EXPECT_TRUE(set) << set.error().message();
  if (!set) return {};
  EXPECT_EQ(set->kind->name, file.kind) << file.path;
  EXPECT_EQ(set->items.size(), file.items) << file.path;
  return *std::move(set);
}

TEST(EvalData, EveryItemIsReadAndItsSolutionIsRight) {
  DLLM_REQUIRE_SHARED_DATA(shared);
  for (const File& file :
       {File{"gsm8k/test.jsonl", "gsm8k", 1319}, File{"svamp/SVAMP.json", "svamp", 1000},
        File{"arc/ARC-Challenge-test.json", "adapters", 1172}, File{"boolq/test.json", "adapters", 3270},
        File{"cruxeval/cruxeval.jsonl", "cruxeval", 800}}) {
    const EvalSet set = read(shared, file);
    std::size_t wrong = 0;
    for (const EvalItem& item : set.items) {
      const std::string& text = item.solution.empty() ? item.answer : item.solution;
      const auto verdict = set.kind->judge(item, text, {});
      ASSERT_TRUE(verdict) << verdict.error().message();
      wrong += verdict->correct ? 0 : 1;
      EXPECT_TRUE(verdict->strict.value_or(true)) << file.path << " " << item.line;
    }
    EXPECT_EQ(wrong, 0u) << file.path;
  }
}

TEST(EvalData, HellaswagHasFourEndings) {
  DLLM_REQUIRE_SHARED_DATA(shared);
  for (const EvalItem& item : read(shared, {"hellaswag/hellaswag_val1000.jsonl", "hellaswag", 1000}).items) {
    EXPECT_EQ(item.choices.size(), 4u);
    EXPECT_EQ(item.prompt.find("  "), std::string::npos) << item.line;
  }
}

TEST(EvalData, HumanevalSolutionsPassTheirTests) {
  DLLM_REQUIRE_SHARED_DATA(shared);
  if (const auto result = run_python("", ""); !result) GTEST_SKIP() << result.error().message();
  const EvalSet set = read(shared, {"humaneval/HumanEval.jsonl", "humaneval", 164});
  // Every fourteenth, because each takes a Python process.
  for (std::size_t i = 0; i < set.items.size(); i += 14) {
    const auto verdict =
        set.kind->judge(set.items[i], set.items[i].answer, {.run_code = RunCode::kSandboxed, .seconds = 60});
    ASSERT_TRUE(verdict) << verdict.error().message();
    EXPECT_TRUE(verdict->correct) << set.items[i].entry_point << ": " << verdict->note;
  }
}

}  // namespace
}  // namespace dllm
