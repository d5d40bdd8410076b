// The CPU backend against the float64 definition, on random models of every architecture and every kind of plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cpu/cpu_backend.h"
#include "random_model.h"
#include "reference_backend.h"

namespace dllm {
namespace {

using test::RandomModel;
using test::ReferenceBackend;

struct Pair {
  explicit Pair(const RandomModel& spec, CpuOptions options = {})
      : model(*Model::load(test::random_source(spec))),
        build([this](StepShape shape) { return model->build(shape); }),
        cpu(*CpuBackend::create(model->desc(), build, model->weights(), options)),
        reference(model->desc(), build, model->weights()),
        cpu_cache(*cpu->make_cache(64)),
        reference_cache(*reference.make_cache(64)) {}

  /// Runs one step on both; returns the largest difference of logits relative to the largest logit.
  double compare(StepPlan plan) {
    plan.causal_block = plan.causal_block ? plan.causal_block : model->desc().causal_block;
    SequenceStep step{cpu_cache.get(), plan, {}, {}};
    step.request.logits = true;
    const auto actual = *cpu->forward({&step, 1});
    step.cache = reference_cache.get();
    const auto expected = *reference.forward({&step, 1});
    double scale = 0, worst = 0;
    EXPECT_EQ(actual[0].logits.size(), expected[0].logits.size());
    for (std::size_t i = 0; i < expected[0].logits.size(); ++i) {
      scale = std::max(scale, std::abs(static_cast<double>(expected[0].logits[i])));
      worst = std::max(worst,
                       std::abs(static_cast<double>(actual[0].logits[i]) - static_cast<double>(expected[0].logits[i])));
    }
    return worst / scale;
  }

  std::shared_ptr<const Model> model;
  std::function<Graph(StepShape)> build;
  std::unique_ptr<CpuBackend> cpu;
  ReferenceBackend reference;
  std::unique_ptr<KvCache> cpu_cache, reference_cache;
};

StepPlan full_plan(Position length, TokenId vocab) {
  StepPlan plan;
  for (Position p = 0; p < length; ++p) {
    plan.rows.push_back({p, (p * 7 + 3) % vocab});
    plan.scored.push_back(p);
  }
  plan.visible = {{0, length}};
  return plan;
}

TEST(CpuBackend, FullPassesOfEveryArchitecture) {
  for (const char* architecture : {"llada", "dream", "llama", "llada-moe", "llada2", "rnd1", "sdar", "sdar-moe",
                                   "fast-dllm-v2", "qwen2", "qwen3", "qwen3moe", "mdlm"})
    for (const std::int64_t kv_heads : {1, 2, 4}) {
      Pair pair({.architecture = architecture, .kv_heads = kv_heads});
      EXPECT_LT(pair.compare(full_plan(37, 80)), 1e-5) << architecture << ' ' << kv_heads;
    }
}

TEST(CpuBackend, RowsWithMixturesOfTokens) {
  for (const TensorType type : {TensorType::kF32, TensorType::kF16}) {
    Pair pair({.type = type});
    StepPlan plan = full_plan(23, 80);
    const double plain = pair.compare(plan);
    plan.mixtures = {{2, {{5, 0.3f}, {61, 0.02f}, {79, -1.5f}}}, {7, {{0, 1.f}}}, {22, {{4, 0.25f}}}};
    EXPECT_LT(pair.compare(plan), 2 * plain + 1e-6) << "the reference mixes in float64";
    SequenceStep step{pair.cpu_cache.get(), plan, {}, {}};
    step.request.logits = true;
    const auto mixed = *pair.cpu->forward({&step, 1});
    step.plan.mixtures.clear();
    EXPECT_NE((*pair.cpu->forward({&step, 1}))[0].logits, mixed[0].logits);
  }
}

TEST(CpuBackend, TwoRegionsAndWindows) {
  for (const std::int64_t kv_heads : {1, 2}) {
    Pair pair({.architecture = "diffusion-gemma", .layers = 4, .kv_heads = kv_heads});
    StepPlan prompt = full_plan(29, 80);
    prompt.causal_block = 1;
    EXPECT_LT(pair.compare(prompt), 1e-5);
    prompt.causal_block = 4;  // windows before blocks
    EXPECT_LT(pair.compare(prompt), 1e-5);
    StepPlan canvas = full_plan(37, 80);
    canvas.rows.erase(canvas.rows.begin(), canvas.rows.begin() + 29);
    canvas.scored = {0, 3, 7};
    canvas.region = Region::kCanvas;
    const double plain = pair.compare(canvas);
    EXPECT_LT(plain, 1e-5);
    canvas.mixtures = {{0, {{5, 0.3f}, {61, 0.7f}}}, {6, {{0, 1.f}}}};
    EXPECT_LT(pair.compare(canvas), 1e-5);
    canvas.visible = {{0, 3}, {20, 27}, {29, 37}};
    EXPECT_LT(pair.compare(canvas), 1e-5);
  }
}

TEST(CpuBackend, RegionsOfABatchDoNotMeet) {
  Pair pair({.architecture = "diffusion-gemma", .layers = 3, .kv_heads = 2});
  const auto run = [&](const std::vector<Region>& regions) {
    std::vector<std::unique_ptr<KvCache>> caches;
    std::vector<SequenceStep> batch;
    for (const Region region : regions) {
      caches.push_back(*pair.cpu->make_cache(64));
      StepPlan plan = full_plan(11, 80);
      plan.region = region;
      plan.causal_block = region == Region::kContext ? 1 : 0;
      batch.push_back({caches.back().get(), plan, {}, {}});
      batch.back().request.logits = true;
    }
    return *pair.cpu->forward(batch);
  };
  using enum Region;
  const auto both = run({kContext, kCanvas, kContext});
  EXPECT_EQ(both[0].logits, run({kContext})[0].logits);
  EXPECT_EQ(both[1].logits, run({kCanvas})[0].logits);
  EXPECT_EQ(both[2].logits, both[0].logits);
  EXPECT_NE(both[1].logits, both[0].logits);
}

TEST(CpuBackend, EveryKindOfRouting) {
  using enum GateScore;
  const ExpertsDesc kinds[] = {
      {.count = 8, .used = 8, .width = 32, .score = kSoftmax},
      {.count = 7, .used = 1, .width = 24, .shared_width = 40, .leading_dense = 1, .score = kSigmoid},
      {.count = 12,
       .used = 4,
       .width = 32,
       .score = kSigmoid,
       .groups = 4,
       .groups_used = 2,
       .normalize = true,
       .scale = 2.5f},
      {.count = 12, .used = 4, .width = 32, .shared_width = 32, .score = kSigmoid, .capacity = 6, .normalize = true},
      {.count = 6, .used = 2, .width = 32, .score = kSoftmax, .groups = 6, .groups_used = 3},
  };
  for (const ExpertsDesc& kind : kinds) {
    Pair pair({.architecture = "llada2", .experts = kind});
    EXPECT_LT(pair.compare(full_plan(37, 80)), 1e-5) << kind.count << ' ' << kind.used;
    StepPlan rest = full_plan(40, 80);  // all of the last block, so that its pool is complete
    rest.rows.erase(rest.rows.begin(), rest.rows.begin() + 32);
    rest.scored = {0, 5};
    rest.visible = {{0, 40}};
    EXPECT_LT(pair.compare(rest), 1e-5) << kind.count << ' ' << kind.used;
  }
}

TEST(CpuBackend, ExpertsOfEveryWeightType) {
  for (const TensorType type : {TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0, TensorType::kQ4_0,
                                TensorType::kQ4_K, TensorType::kQ6_K, TensorType::kMXFP4, TensorType::kQ2_K,
                                TensorType::kQ3_K, TensorType::kIQ4_NL, TensorType::kIQ4_XS, TensorType::kNVFP4}) {
    // Every expert is used, so noise of 8-bit activations does not change the choice.
    const RandomModel spec{.architecture = "llada-moe",
                           .width = 256,
                           .heads = 4,
                           .kv_heads = 2,
                           .ffn_width = 512,
                           .type = type,
                           .experts = {.count = 4, .used = 4, .width = 256}};
    CpuOptions options;
    options.kv = CpuKvType::kF32;
    EXPECT_LT(Pair(spec, options).compare(full_plan(19, 80)), 3e-2) << codec(type).name;
    options.activations = CpuActivations::kF32;
    EXPECT_LT(Pair(spec, options).compare(full_plan(19, 80)), 1e-5) << codec(type).name << ", exact activations";
  }
}

TEST(CpuBackend, OddShapes) {
  EXPECT_LT(Pair({.width = 24, .layers = 3, .heads = 3, .kv_heads = 1, .ffn_width = 43, .vocab = 17})
                .compare(full_plan(11, 17)),
            1e-5);
  EXPECT_LT(Pair({.width = 8, .layers = 1, .heads = 1, .kv_heads = 1, .ffn_width = 5, .vocab = 1100})
                .compare(full_plan(2, 90)),
            1e-5);
}

TEST(CpuBackend, ScatteredRowsPrefixesAndBlocks) {
  for (const char* architecture : {"llada", "dream"}) {
    Pair pair({.architecture = architecture, .kv_heads = 2});
    EXPECT_LT(pair.compare(full_plan(40, 80)), 1e-5);
    StepPlan scattered;
    scattered.rows = {{3, 1}, {9, 70}, {10, 5}, {31, 12}, {39, 79}};
    scattered.visible = {{0, 40}};
    scattered.scored = {1, 4};
    EXPECT_LT(pair.compare(scattered), 1e-5);
    scattered.visible = {{0, 11}, {30, 34}, {39, 40}};  // near suffix only
    EXPECT_LT(pair.compare(scattered), 1e-5);
    scattered.causal_block = 8;
    EXPECT_LT(pair.compare(scattered), 1e-5);
  }
}

TEST(CpuBackend, WeightTypes) {
  struct Case {
    TensorType type;
    double tolerance;
  };
  // F16 differs by float32 rounding only; BF16 by rows rounded to BF16 (one part in 512 per value); quantized types by
  // 8-bit activations (one part in 254 of the largest of 32, averaged over the row).
  for (const Case c :
       {Case{TensorType::kF16, 1e-5},     Case{TensorType::kBF16, 1e-2},   Case{TensorType::kQ8_0, 3e-2},
        Case{TensorType::kQ4_0, 3e-2},    Case{TensorType::kQ4_1, 3e-2},   Case{TensorType::kQ5_0, 3e-2},
        Case{TensorType::kQ5_1, 3e-2},    Case{TensorType::kQ4_K, 3e-2},   Case{TensorType::kQ5_K, 3e-2},
        Case{TensorType::kQ6_K, 3e-2},    Case{TensorType::kQ2_K, 3e-2},   Case{TensorType::kQ3_K, 3e-2},
        Case{TensorType::kIQ4_NL, 3e-2},  Case{TensorType::kIQ4_XS, 3e-2}, Case{TensorType::kMXFP4, 3e-2},
        Case{TensorType::kNVFP4, 3e-2},   Case{TensorType::kIQ1_S, 3e-2},  Case{TensorType::kIQ1_M, 3e-2},
        Case{TensorType::kIQ2_XXS, 3e-2}, Case{TensorType::kIQ2_XS, 3e-2}, Case{TensorType::kIQ2_S, 3e-2},
        Case{TensorType::kIQ3_XXS, 3e-2}, Case{TensorType::kIQ3_S, 3e-2}}) {
    const RandomModel spec{.width = 256, .layers = 2, .heads = 4, .kv_heads = 2, .ffn_width = 512, .type = c.type};
    CpuOptions exact;
    exact.kv = CpuKvType::kF32;
    EXPECT_LT(Pair(spec, exact).compare(full_plan(19, 80)), c.tolerance) << codec(c.type).name;
    exact.activations = CpuActivations::kF32;
    EXPECT_LT(Pair(spec, exact).compare(full_plan(19, 80)), 1e-5) << codec(c.type).name << ", exact activations";
  }
}

TEST(CpuBackend, ScoresAreTheReductionOfTheLogits) {
  Pair pair({.vocab = 1500});
  StepPlan plan = full_plan(20, 80);
  for (const std::vector<TokenRule>& rules :
       {std::vector<TokenRule>{}, {{5, false, true}, {6, false, true}}, {{5, false, false}}, {{7, true, false}}}) {
    SequenceStep step{pair.cpu_cache.get(), plan, {}, {}};
    step.request.rules = rules;
    const auto actual = *pair.cpu->forward({&step, 1});
    EXPECT_TRUE(actual[0].logits.empty());
    step.cache = pair.reference_cache.get();
    const auto expected = *pair.reference.forward({&step, 1});
    for (std::size_t i = 0; i < plan.scored.size(); ++i) {
      const RowScore& a = actual[0].rows[i];
      const RowScore& e = expected[0].rows[i];
      EXPECT_EQ(a.position, e.position);
      EXPECT_EQ(a.token, e.token);
      EXPECT_NEAR(a.confidence, e.confidence, 1e-5);
      if (std::isfinite(e.log_odds)) {
        EXPECT_NEAR(a.log_odds, e.log_odds, 1e-4);
      }
      EXPECT_NEAR(a.margin, e.margin, 1e-5);
      EXPECT_NEAR(a.entropy, e.entropy, 1e-4);
      EXPECT_EQ(a.overruled, e.overruled);
    }
  }
}

TEST(CpuBackend, GuidanceCombinesTwoSequences) {
  Pair pair({});
  const StepPlan plan = full_plan(16, 80);
  StepPlan masked = plan;
  for (int i = 0; i < 6; ++i) masked.rows[static_cast<std::size_t>(i)].token = 79;
  auto run = [&](Backend& backend) {
    const auto first = *backend.make_cache(64), second = *backend.make_cache(64);
    std::vector<SequenceStep> batch = {{first.get(), plan, {}, Guidance{1, 1.5f}}, {second.get(), masked, {}, {}}};
    batch[0].request.logits = true;
    return *backend.forward(batch);
  };
  const auto actual = run(*pair.cpu), expected = run(pair.reference);
  EXPECT_TRUE(actual[1].rows.empty());
  for (std::size_t i = 0; i < expected[0].logits.size(); ++i)
    EXPECT_NEAR(actual[0].logits[i], expected[0].logits[i], 1e-4);
  for (std::size_t i = 0; i < expected[0].rows.size(); ++i)
    EXPECT_EQ(actual[0].rows[i].token, expected[0].rows[i].token);
}

TEST(CpuBackend, ResultsDoNotDependOnTheBatchTheySit) {
  Pair pair({.type = TensorType::kQ8_0});
  const StepPlan plan = full_plan(21, 80);
  StepPlan other = full_plan(9, 50);
  const auto alone_cache = *pair.cpu->make_cache(64);
  SequenceStep alone{alone_cache.get(), plan, {}, {}};
  alone.request.logits = true;
  const auto expected = *pair.cpu->forward({&alone, 1});
  const auto first = *pair.cpu->make_cache(64), second = *pair.cpu->make_cache(64), third = *pair.cpu->make_cache(64);
  std::vector<SequenceStep> batch = {
      {first.get(), other, {}, {}}, {second.get(), plan, {}, {}}, {third.get(), other, {}, {}}};
  batch[1].request.logits = true;
  const auto actual = *pair.cpu->forward(batch);
  EXPECT_EQ(actual[1].logits, expected[0].logits);
  EXPECT_EQ(actual[0].rows.size(), 9u);
}

TEST(CpuBackend, BlockCausalCachedEqualsUncachedBitForBit) {
  for (const std::int32_t block : {1, 4, 8}) {
    Pair pair({.kv_heads = 2});
    StepPlan full = full_plan(24, 80);
    full.causal_block = block;
    SequenceStep uncached{pair.cpu_cache.get(), full, {}, {}};
    uncached.request.logits = true;
    const auto expected = *pair.cpu->forward({&uncached, 1});
    const auto cache = *pair.cpu->make_cache(64);
    std::vector<float> collected;
    for (Position begin = 0; begin < 24; begin += block) {
      StepPlan part;
      part.causal_block = block;
      for (Position p = begin; p < begin + block; ++p) {
        part.rows.push_back(full.rows[static_cast<std::size_t>(p)]);
        part.scored.push_back(p - begin);
      }
      part.visible = {{0, begin + block}};
      SequenceStep step{cache.get(), part, {}, {}};
      step.request.logits = true;
      const auto scores = *pair.cpu->forward({&step, 1});
      collected.insert(collected.end(), scores[0].logits.begin(), scores[0].logits.end());
    }
    EXPECT_EQ(collected, expected[0].logits) << "block " << block;
  }
}

}  // namespace
}  // namespace dllm
