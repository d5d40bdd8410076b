// DiffusionGemma's two regions: --numerics computes what the functional machine does.

#include <gtest/gtest.h>

#include "model/model.h"
#include "npu_backend/accuracy/accuracy_backend.h"
#include "npu_backend/functional/npu_backend.h"
#include "random_model.h"

namespace dllm {
namespace {

using npu::accuracy::AccuracyBackend, npu::accuracy::NumericsProfile;

/// DiffusionGemma's context, a canvas after it, and the canvas with its own prediction fed back for some rows.
std::vector<std::vector<float>> logits_of_regions(Backend& backend) {
  const auto cache = *backend.make_cache(20);
  std::vector<std::vector<float>> result;
  for (const int pass : {0, 1, 2}) {
    SequenceStep step;
    step.cache = cache.get();
    const Position first = pass == 0 ? 0 : 12, end = pass == 0 ? 12 : 20;
    for (Position p = first; p < end; ++p) {
      step.plan.scored.push_back(static_cast<std::int32_t>(p - first));
      step.plan.rows.push_back({p, static_cast<TokenId>((9 + 11 * p + pass) % 80)});
    }
    step.plan.visible = {{0, end}};
    step.plan.causal_block = pass == 0 ? 1 : 0;
    step.plan.region = pass == 0 ? Region::kContext : Region::kCanvas;
    for (std::int32_t row = 0; pass == 2 && row < 8; row += 3)
      step.plan.mixtures.push_back({row, {{row + 1, 0.5f}, {row + 40, 0.3f}, {7, 0.2f}}});
    step.request.logits = true;
    auto scores = backend.forward({&step, 1});
    if (!scores) ADD_FAILURE() << scores.error().message();
    if (scores) result.push_back(scores->front().logits);
  }
  return result;
}

TEST(NumericsOfRegions, EqualTheFunctionalMachine) {
  const std::shared_ptr<const Model> model =
      *Model::load(test::random_source({.architecture = "diffusion-gemma", .kv_heads = 2}));
  const auto graph = [&](StepShape shape) { return model->build(shape); };
  for (const char* name : {"fp16-q4_0", "w4a8kv4", "bf16"}) {
    SCOPED_TRACE(name);
    NumericsProfile profile = *npu::accuracy::load_numerics(name);
    profile.device = "plena-64-wide";  // its memories are the smallest, which are cleared fastest
    ASSERT_TRUE(profile.on_machine());
    const auto simulated = *AccuracyBackend::create(model->desc(), graph, model->weights(), profile, 2);
    const auto machine =
        *npu::NpuBackend::create(model->desc(), graph, model->weights(), *profile.machine(), {.positions = 24});
    const auto got = logits_of_regions(*simulated), expected = logits_of_regions(*machine);
    ASSERT_EQ(got.size(), 3u);
    EXPECT_EQ(got, expected);
    EXPECT_NE(got[1], got[2]);
  }
}

}  // namespace
}  // namespace dllm
