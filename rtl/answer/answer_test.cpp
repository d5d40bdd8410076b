// Passes and answers of small models on the core of 8 lanes. CoreExecutor compares registers and memories with the
// functional machine after every program, and times; here scores and tokens are compared with the accuracy simulator.
#include <gtest/gtest.h>

#include <cstdio>

#include "answer/answers.h"
#include "random_model.h"
#include "test/fault.h"

namespace dllm::rtl {
namespace {

std::shared_ptr<const Model> small_model() {
  static const std::shared_ptr<const Model> model = *Model::load(
      test::random_source({.width = 16, .layers = 2, .heads = 2, .kv_heads = 1, .ffn_width = 24, .vocab = 40}));
  return model;
}

std::unique_ptr<CoreAnswers> answers_of_small_model(MemoryTiming timing = {}) {
  auto answers = CoreAnswers::create(small_model(), answer8(), timing);
  EXPECT_TRUE(answers.has_value()) << answers.error().message();
  return std::move(*answers);
}

/// A prompt with a block, then the block alone with the cache's contents: their logits.
Expected<std::vector<float>> two_passes(Backend& backend) {
  const auto cache = *backend.make_cache(12);
  std::vector<float> logits;
  for (const Position first : {0, 8}) {
    SequenceStep step;
    step.cache = cache.get();
    for (Position p = first; p < 12; ++p)
      step.plan.rows.push_back({p, static_cast<TokenId>((9 + 11 * p + first) % 40)});
    step.plan.visible = {{0, 12}};
    for (std::int32_t i = 12 - first - 4; i < 12 - first; ++i) step.plan.scored.push_back(i);
    step.request.logits = true;
    auto scores = backend.forward({&step, 1});
    if (!scores) return scores.error();
    logits.insert(logits.end(), scores->front().logits.begin(), scores->front().logits.end());
  }
  return logits;
}

void expect_equal_passes(MemoryTiming timing) {
  const auto answers = answers_of_small_model(timing);
  const auto core = two_passes(answers->on_core()), device = two_passes(answers->on_device());
  ASSERT_TRUE(core.has_value()) << core.error().message();
  ASSERT_TRUE(device.has_value()) << device.error().message();
  EXPECT_EQ(core->size(), 2u * 4 * 40);
  EXPECT_EQ(*core, *device);
  const CoreTotals& totals = answers->totals();
  EXPECT_EQ(totals.programs, 2u);
  EXPECT_GT(totals.result.values, 100u) << "the programs compute nothing";
  std::printf("%s", cycle_table(totals).c_str());
}

TEST(RtlAnswer, PassesWithIdealMemory) { expect_equal_passes({}); }
TEST(RtlAnswer, PassesWithSlowMemory) { expect_equal_passes({.latency = 60, .stall = 3}); }

TEST(RtlAnswer, AnswersOfASmallModel) {
  struct Method {
    const char* decoder;
    const char* cache;
  };
  const auto answers = answers_of_small_model();
  const std::vector<TokenId> prompt = {3, 14, 15, 9, 26, 5};
  for (const Method& method : {Method{"low-confidence", "none"}, Method{"threshold", "prefix"}}) {
    GenerateOptions options;
    options.length = 8;
    options.block_length = 4;
    if (method.decoder == std::string("low-confidence")) options.decoder.options["steps"] = 4;
    options.decoder.name = method.decoder;
    options.cache.name = method.cache;
    const auto answer = answers->answer(prompt, options);
    ASSERT_TRUE(answer.has_value()) << method.decoder << ": " << answer.error().message();
    EXPECT_TRUE(answer->equal()) << method.decoder;
    EXPECT_EQ(answer->core.ids.size(), 8u);
    EXPECT_GT(answer->core.stats.nfe, 2);
  }
  std::printf("%llu programs, %lld cycles, %.1f s\n", static_cast<unsigned long long>(answers->totals().programs),
              static_cast<long long>(answers->totals().result.cycles), answers->totals().seconds);
}

/// Faults in the sources (rtl/fault.svh): a lost sticky bit in adders; a loop with one more iteration.
TEST(RtlAnswer, AFaultEndsTheAnswer) {
  for (const int fault : {3, 11}) {
    const PlantedFault planted(fault);
    const auto logits = two_passes(answers_of_small_model()->on_core());
    ASSERT_FALSE(logits.has_value()) << fault;
    EXPECT_EQ(logits.error().code, ErrorCode::kMismatch) << logits.error().message();
  }
}

}  // namespace
}  // namespace dllm::rtl
