// Smoothing of K and V: the compiled programs compute what --numerics does.

#include <gtest/gtest.h>

#include "dllm/model.h"
#include "model/model.h"
#include "npu_backend/accuracy/accuracy_backend.h"
#include "npu_backend/functional/npu_backend.h"
#include "random_model.h"

namespace dllm {
namespace {

using npu::accuracy::AccuracyBackend, npu::accuracy::NumericsProfile;

auto random_graph(const std::shared_ptr<const Model>& model) {
  return [model](StepShape shape) { return model->build(shape); };
}

NumericsProfile small_profile(const std::string& name) {
  NumericsProfile profile = *npu::accuracy::load_numerics(name);
  profile.device = "plena-64-wide";  // its memories are the smallest, which are cleared fastest
  return profile;
}

std::unique_ptr<npu::NpuBackend> programs(const std::shared_ptr<const Model>& model, const NumericsProfile& profile,
                                          std::int64_t positions) {
  return *npu::NpuBackend::create(model->desc(), random_graph(model), model->weights(), *profile.machine(),
                                  {.positions = positions});
}

std::unique_ptr<AccuracyBackend> simulated(const std::shared_ptr<const Model>& model, const NumericsProfile& profile) {
  return *AccuracyBackend::create(model->desc(), random_graph(model), model->weights(), profile, 2);
}

/// Warm steps take statistics, the others use those that the cache has: a prompt and a block, the block's rows, all
/// again, two rows. Several chunks of keys, and heads that share a KV head.
std::vector<std::vector<float>> smoothed_logits(Backend& backend) {
  constexpr Position kEnd = 150;
  const auto cache = *backend.make_cache(kEnd);
  std::vector<std::vector<float>> result;
  for (const Position first : {0, 120, 0, 148}) {
    SequenceStep step;
    step.cache = cache.get();
    for (Position p = first; p < kEnd; ++p)
      step.plan.rows.push_back({p, static_cast<TokenId>((9 + 11 * p + first + result.size()) % 80)});
    step.plan.visible = {{0, kEnd}};
    step.plan.scored = {0, static_cast<std::int32_t>(kEnd - first - 1)};
    step.request.logits = true;
    auto scores = backend.forward({&step, 1});
    if (!scores) ADD_FAILURE() << scores.error().message();
    if (scores) result.push_back(scores->front().logits);
  }
  return result;
}

struct Smoothed {
  const char *numerics, *lanes;
  npu::Smoothing smoothing;
};

/// With 4,096 rows of vector SRAM four tiles of keys fit one chunk of scores: 256 keys, or 128 if heads have 32 lanes.
TEST(SmoothedPrograms, EqualTheSimulator) {
  using enum npu::SmoothingCentre;
  const std::shared_ptr<const Model> model =
      *Model::load(test::random_source({.architecture = "llada", .kv_heads = 2}));
  for (const auto& [numerics, lanes, smoothing] :
       {Smoothed{"w4a8kv4", "32", {kMean, kMinMax, 0.5}}, Smoothed{"w4a8kv4", "64", {kMinMax, kMean, 1}},
        Smoothed{"w4a8kv4", "64", {kMinMax, kMinMax, 0}}, Smoothed{"mxfp8", "32", {kMean, kNone, 0.75}},
        Smoothed{"mxfp8", "32", {kNone, kMean, 0.25}}, Smoothed{"fp16-q4_0", "32", {kMean, kMean, 0.5}},
        Smoothed{"fp16-q4_0", "64", {kMinMax, kMinMax, 1}}}) {
    NumericsProfile profile = small_profile(numerics);
    profile.changes = {{"sram.vector_rows", "4096"}, {"array.hlen", lanes}};
    profile.smoothing = smoothing;
    ASSERT_TRUE(profile.on_machine());
    const auto machine = programs(model, profile, 160);
    EXPECT_EQ(machine->layout().chunk_tiles, 4);
    const auto got = smoothed_logits(*simulated(model, profile));
    ASSERT_EQ(got.size(), 4u);
    EXPECT_EQ(got, smoothed_logits(*machine)) << numerics << " " << lanes << " " << smoothing.alpha;
    profile.smoothing = {};
    EXPECT_NE(got, smoothed_logits(*simulated(model, profile))) << numerics << " " << lanes << " " << smoothing.alpha;
  }
}

/// What the machine cannot compute is refused with its reason: powers other than roots, rows of two warm steps.
TEST(SmoothedPrograms, RefuseWhatIsNotCompiled) {
  using enum npu::SmoothingCentre;
  const std::shared_ptr<const Model> model = *Model::load(test::random_source({.architecture = "llada"}));
  NumericsProfile profile = small_profile("w4a8kv4");
  const auto second_step = [&](Position first) {
    const auto machine = programs(model, profile, 16);
    const auto cache = *machine->make_cache(12);
    Expected<std::vector<Scores>> last = std::vector<Scores>{};
    for (const Position begin : {Position{0}, first}) {
      SequenceStep step{cache.get(), {}, {}, std::nullopt};
      for (Position p = begin; p < 12; ++p) step.plan.rows.push_back({p, 5});
      step.plan.visible = {{begin, 12}};
      step.plan.scored = {0};
      last = machine->forward({&step, 1});
      if (!last) break;
    }
    return last ? std::string() : last.error().message();
  };
  profile.smoothing = {kMean, kMean, 0.5};
  EXPECT_EQ(second_step(0), "");
  EXPECT_NE(second_step(4).find("position 0 keeps K and V"), std::string::npos);
  profile.smoothing.alpha = 0.6;
  EXPECT_FALSE(profile.on_machine());
  EXPECT_NE(second_step(0).find("no power 0.6"), std::string::npos);
}

}  // namespace
}  // namespace dllm
