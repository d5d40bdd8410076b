// Shadow rows on the CPU: against the float64 definition, and bit for bit on every instruction set, number of threads
// and type of cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cpu/cpu_backend.h"
#include "random_model.h"
#include "reference_backend.h"
#include "shadow_properties.h"

namespace dllm {
namespace {

using test::RandomModel;

std::unique_ptr<CpuBackend> cpu_of(const std::shared_ptr<const Model>& model, const CpuOptions& options = {}) {
  return *CpuBackend::create(
      model->desc(), [model](StepShape shape) { return model->build(shape); }, model->weights(), options);
}

/// The largest difference of logits relative to the largest logit, for a full pass and one with shadow rows.
double difference(const RandomModel& spec, std::int32_t causal_block, Region region = Region::kContext) {
  const std::shared_ptr<const Model> model = *Model::load(test::random_source(spec));
  const auto cpu = cpu_of(model);
  test::ReferenceBackend reference(
      model->desc(), [model](StepShape shape) { return model->build(shape); }, model->weights());
  const auto ours = *cpu->make_cache(64), theirs = *reference.make_cache(64);
  StepPlan full, some;
  full.causal_block = some.causal_block = causal_block;
  full.region = some.region = region;
  for (Position p = 0; p < 37; ++p) full.rows.push_back({p, (p * 7 + 3) % 80});
  full.visible = some.visible = {{0, 37}};
  full.scored = {5};
  for (Position p = 24; p < 32; ++p) some.rows.push_back({p, (p * 5 + 1) % 80});
  some.scored = {0, 7, 8, 9, 10, 11};
  some.shadows = {{{3, 79}, {{0, 3}, {4, 37}}},
                  {{25, 79}, {{0, 25}, {26, 37}}},
                  {{26, 79}, {{24, 26}, {27, 30}}},
                  {{31, 11}, {{0, 37}}}};
  double worst = 0, scale = 0;
  for (const StepPlan& plan : {full, some}) {
    SequenceStep step{ours.get(), plan, {}, {}};
    step.request.logits = true;
    const auto actual = *cpu->forward({&step, 1});
    step.cache = theirs.get();
    const auto expected = *reference.forward({&step, 1});
    EXPECT_EQ(actual[0].logits.size(), expected[0].logits.size());
    for (std::size_t i = 0; i < expected[0].logits.size(); ++i) {
      const auto definition = static_cast<double>(expected[0].logits[i]);
      scale = std::max(scale, std::abs(definition));
      worst = std::max(worst, std::abs(static_cast<double>(actual[0].logits[i]) - definition));
    }
  }
  return worst / scale;
}

TEST(ShadowRows, FollowTheDefinition) {
  for (const char* architecture : {"llada", "dream", "llada-moe", "sdar"})
    for (const std::int32_t block : {0, 8})
      EXPECT_LT(difference({.architecture = architecture, .kv_heads = 2}, block), 1e-5) << architecture << ' ' << block;
  for (const Region region : {Region::kContext, Region::kCanvas})  // layers with windows
    for (const std::int32_t block : {0, 1, 4})
      EXPECT_LT(difference({.architecture = "diffusion-gemma", .layers = 4, .kv_heads = 2}, block, region), 1e-5)
          << block;
}

// Rows of a block share experts; shadow rows must not take part in their choice.
TEST(ShadowRows, ChooseExpertsApart) {
  const ExpertsDesc pooled = {.count = 12,
                              .used = 4,
                              .width = 32,
                              .shared_width = 32,
                              .score = GateScore::kSigmoid,
                              .capacity = 6,
                              .normalize = true};
  const RandomModel spec{.architecture = "llada2", .experts = pooled};
  EXPECT_LT(difference(spec, 0), 1e-5);
  const std::shared_ptr<const Model> model = *Model::load(test::random_source(spec));
  const auto cpu = cpu_of(model);
  StepPlan plan;
  for (Position p = 0; p < 32; ++p) plan.rows.push_back({p, (p * 7 + 3) % 80});
  plan.visible = {{0, 32}};
  plan.scored = {30, 31};
  const auto logits = [&](const std::vector<ShadowRow>& shadows) {
    const auto cache = *cpu->make_cache(64);
    SequenceStep step{cache.get(), plan, {}, {}};
    step.plan.shadows = shadows;
    step.request.logits = true;
    return (*cpu->forward({&step, 1}))[0].logits;
  };
  std::vector<ShadowRow> many;  // of the last row's block, right after it
  for (Position p = 16; p < 32; ++p) many.push_back({{p, (p * 11) % 80}, {{0, 32}}});
  EXPECT_EQ(logits(many), logits({}));
}

/// The shadow rows' logits on every instruction set, with one thread and several.
void expect_equal_everywhere(const char* architecture, TensorType weights, CpuKvType kv, std::int32_t block) {
  const RandomModel spec{
      .architecture = architecture, .width = 64, .layers = 2, .heads = 2, .kv_heads = 2, .type = weights};
  const std::shared_ptr<const Model> model = *Model::load(test::random_source(spec));
  std::vector<float> first;
  for (const CpuIsa& isa : cpu_isas())
    for (const int threads : {1, 3}) {
      if (!isa.available) continue;
      SCOPED_TRACE(std::string(architecture) + ' ' + isa.name + ' ' + std::to_string(threads) + " threads");
      CpuOptions options;
      options.isa = isa.name;
      options.threads = threads;
      options.kv = kv;
      options.arithmetic = CpuArithmetic::kExact;  // what a set chooses by itself has other bits
      options.attention = CpuAttention::kF32;
      const auto cpu = cpu_of(model, options);
      const std::vector<float> logits = test::ShadowProperties(*cpu, block, true).check();
      if (first.empty()) first = logits;
      EXPECT_EQ(logits, first);
    }
  EXPECT_FALSE(first.empty());
}

TEST(ShadowRows, AreTheSameOnEverySetWithAnyThreadsAndCache) {
  for (const std::int32_t block : {0, 8}) {
    expect_equal_everywhere("llada", TensorType::kF32, CpuKvType::kF32, block);
    expect_equal_everywhere("llada", TensorType::kQ8_0, CpuKvType::kF16, block);
    expect_equal_everywhere("llada", TensorType::kQ8_0, CpuKvType::kQ8_0, block);
    expect_equal_everywhere("diffusion-gemma", TensorType::kQ8_0, CpuKvType::kF16, block);  // layers with windows
  }
}

}  // namespace
}  // namespace dllm
