// Answers whose drafts the model checks itself (s2d2), and answers of tokens that stay mixtures (dmax).
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "dllm/model.h"
#include "golden_model.h"

namespace dllm {
namespace {

LanguageModel loaded(const std::string& path, std::int32_t threads) {
  LoadOptions options;
  options.threads = threads;
  return *LanguageModel::load(path, options);
}

GenerateOptions checking(double temperature) {
  GenerateOptions options;
  options.length = 24;
  options.exact_length = true;
  options.temperature = temperature;
  options.seed = 4;
  options.decoder = {"s2d2", {{"check_cost", 0.0}, {"threshold", 2.0}}};
  return options;
}

/// Rows that predict their own position (sdar, llada2) and the next one (fast-dllm-v2).
class CheckedAnswers : public ::testing::TestWithParam<const char*> {};

TEST_P(CheckedAnswers, AreTheSameWithAnyThreads) {
  const test::GoldenModel golden(GetParam());
  const LanguageModel one = loaded(golden.path(), 1), three = loaded(golden.path(), 3);
  for (const double temperature : {0.0, 0.8}) {
    const auto ours = one.generate_ids({97, 98, 99, 100, 101}, checking(temperature));
    ASSERT_TRUE(ours) << ours.error().message();
    const auto theirs = three.generate_ids({97, 98, 99, 100, 101}, checking(temperature));
    ASSERT_TRUE(theirs);
    EXPECT_EQ(ours->ids, theirs->ids);
    EXPECT_EQ(ours->confidence, theirs->confidence);
    EXPECT_GT(ours->stats.rounds, 1);
    EXPECT_EQ(ours->stats.committed_tokens, 24);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CheckedAnswers, ::testing::Values("sdar", "llada2", "fast-dllm-v2"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase_if(name, [](char c) { return c == '-'; });
                           return name;
                         });

/// What is drawn from logits cannot be kept from an earlier pass, which has no more than the token.
TEST(CheckedAnswersOfOthers, KeepNoFrontWhereTheyAreDrawn) {
  const test::GoldenModel golden("fast-dllm-v2");
  const LanguageModel model = loaded(golden.path(), 1);
  GenerateOptions options = checking(0.8);
  options.cache = {"block-causal", {}};
  const auto expected = model.generate_ids({97, 98, 99, 100, 101}, options);
  options.cache.options["keep_front"] = true;
  const auto answer = model.generate_ids({97, 98, 99, 100, 101}, options);
  ASSERT_TRUE(expected && answer);
  EXPECT_EQ(answer->ids, expected->ids);
}

TEST(CheckedAnswersOfOthers, RefuseToDeferStopTokens) {
  const test::GoldenModel golden("sdar");
  GenerateOptions options = checking(0.8);
  options.defer_eos = true;
  const auto refused = loaded(golden.path(), 1).generate_ids({97, 98, 99}, options);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("--defer-eos"), std::string::npos) << refused.error().message();
}

TEST(CheckedAnswersOfOthers, AreRefusedWhereAttentionHasNoBlocks) {
  const LanguageModel model = loaded("", 1);
  const auto refused = model.generate_ids({1, 2, 3}, checking(0));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_NE(refused.error().what.find("all directions"), std::string::npos) << refused.error().message();
}

TEST(SoftAnswers, AreTheSameWithAnyThreadsAndRefusedOnTheNpu) {
  GenerateOptions options;
  options.length = 32;
  options.decoder = {"dmax", {}};
  const LanguageModel one = loaded("", 1), three = loaded("", 3);
  const auto ours = one.generate("3 + 4 =", options), theirs = three.generate("3 + 4 =", options);
  ASSERT_TRUE(ours && theirs);
  EXPECT_EQ(ours->ids, theirs->ids);
  EXPECT_EQ(ours->confidence, theirs->confidence);
  LoadOptions npu;
  npu.backend = "npu";
  const auto other = LanguageModel::load("", npu);
  if (!other) GTEST_SKIP() << "this build has no NPU";
  const auto refused = other->generate("3 + 4 =", options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().what.find("mixtures"), std::string::npos) << refused.error().message();
}

}  // namespace
}  // namespace dllm
