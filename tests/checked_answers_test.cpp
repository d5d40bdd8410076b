// Answers whose drafts the model checks itself (s2d2), and answers of tokens that stay mixtures (dmax).
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#include "dllm/model.h"
#include "engine/resolve.h"
#include "engine/sequence.h"
#include "golden_model.h"
#include "model/model.h"

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

/// Counts the caches that are asked for.
class CachesCounted final : public Backend {
 public:
  explicit CachesCounted(std::unique_ptr<Backend> own) : own_(std::move(own)) {}
  const ModelDesc& desc() const override { return own_->desc(); }
  bool runs_branches() const override { return own_->runs_branches(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override {
    ++made;
    return own_->make_cache(capacity);
  }
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override { return own_->forward(batch); }

  int made = 0;

 private:
  std::unique_ptr<Backend> own_;
};

/// No more than a window has masks: a block in turn, or the whole answer.
TEST(CheckedAnswersOfOthers, TakeABranchForEachDraftThatThereCanBe) {
  const test::GoldenModel golden("sdar");
  const auto model = *Model::load(golden.path());
  CachesCounted backend(
      *CpuBackend::create(model->desc(), [&](StepShape shape) { return model->build(shape); }, model->weights(), {}));
  const auto made = [&](std::int32_t block, const std::string& window) {
    GenerateOptions options = checking(0);
    if (block > 0) options.block_length = block;
    options.window.name = window;
    const auto resolved = resolve_options(options, model->desc());
    EXPECT_TRUE(resolved) << resolved.error().message();
    backend.made = 0;
    auto sequence = Sequence::start({backend}, {97, 98, 99}, *resolved);
    EXPECT_TRUE(sequence) << sequence.error().message();
    for (auto steps = *(*sequence)->prepare(); !steps.empty(); steps = *(*sequence)->prepare())
      EXPECT_TRUE((*sequence)->absorb(*backend.forward(steps)));
    EXPECT_EQ((*sequence)->decided(), 24);
    return backend.made;
  };
  // The sequence's own, the drafts' and one for each draft's mask.
  EXPECT_EQ(made(4, ""), 1 + 1 + 4);
  EXPECT_EQ(made(8, ""), 1 + 1 + 8);
  EXPECT_GE(made(0, "whole"), 1 + 1 + 24) << "all masks may be drafts";
  EXPECT_LE(made(0, "whole"), 1 + 1 + 32);
}

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
