// The second path of revision on the embedded model, with real threads (run this one under the thread sanitizer).
#include "engine/second_path_runner.h"

#include <gtest/gtest.h>

#include "dllm/model.h"
#include "engine/testing/second_path_test_options.h"

namespace dllm {
namespace {

constexpr const char* kRunnerPrompt =
    "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?";

LanguageModel load(int threads) {
  LoadOptions options;
  options.threads = threads;
  return *LanguageModel::load("", options);
}

TEST(SecondPathRunner, AFixedDelayGivesTheSameTokensOnAnyThreads) {
  for (const std::int32_t delay : {0, 1, 3}) {
    GenerateOptions options = test::second_path();
    options.decoder.options["merge_delay"] = delay;
    const auto one = load(1).generate(kRunnerPrompt, options);
    ASSERT_TRUE(one) << one.error().message();
    EXPECT_GT(one->stats.second_passes, 0);
    for (const int threads : {1, 2, 3}) {
      options.decoder.options["refresh_threads"] = threads;
      const auto other = load(4 - threads).generate(kRunnerPrompt, options);
      ASSERT_TRUE(other);
      EXPECT_EQ(other->ids, one->ids);
      EXPECT_EQ(other->confidence, one->confidence);
      EXPECT_EQ(other->stats.second_passes, one->stats.second_passes);
    }
  }
}

TEST(SecondPathRunner, MergedWhenReadyItAnswersToo) {
  GenerateOptions options = test::second_path();
  options.decoder.options["refresh_merge"] = "ready";
  options.decoder.options["refresh_threads"] = 2;
  const LanguageModel model = load(2);
  for (int i = 0; i < 5; ++i) {
    const auto answer = model.generate(kRunnerPrompt, options);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->finish, FinishReason::kStop);
  }
}

TEST(SecondPathRunner, AnswersDoNotDependOnTheBatch) {
  const LanguageModel model = load(1);
  std::vector<std::vector<ChatTurn>> questions;
  for (const char* text : {kRunnerPrompt, "Sort: 5 3 9 1", "7 + 8 = ?", "Reverse: abcdef", kRunnerPrompt})
    questions.push_back({{"user", text}});
  const auto batch = model.generate_batch(questions, test::second_path(), 3);
  ASSERT_TRUE(batch);
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const auto alone = model.generate(questions[i], test::second_path());
    ASSERT_TRUE(alone);
    EXPECT_EQ((*batch)[i].ids, alone->ids);
  }
}

TEST(SecondPathRunner, WhatCannotBeIsRefused) {
  GenerateOptions options = test::second_path();
  options.decoder.name = "threshold";
  EXPECT_FALSE(load(1).generate(kRunnerPrompt, options));
  options = test::second_path();
  options.cfg_scale = 1;
  EXPECT_FALSE(load(1).generate(kRunnerPrompt, options));
  options = test::second_path();
  options.decoder.options["refresh_path"] = "folded";
  options.decoder.options["refresh_sees"] = "prefix";
  EXPECT_FALSE(load(1).generate(kRunnerPrompt, options));
}

}  // namespace
}  // namespace dllm
