// Draws of the NPU: the sampling program's FP64 tokens are those of the CPU's reduction, and the accuracy simulator
// draws in its profile's precision.

#include <gtest/gtest.h>

#include "cpu/kernels/kernel_set.h"
#include "cpu/reduction.h"
#include "model/model.h"
#include "npu_backend/accuracy/accuracy_backend.h"
#include "npu_backend/accuracy/sampling.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/machine.h"
#include "npu_core/sampling/kernel.h"
#include "npu_core/sampling/reference.h"
#include "random_model.h"

namespace dllm {
namespace {

TEST(NpuDraws, SamplingProgramDrawsTheTokensOfTheCpu) {
  npu::SamplingShape shape;
  shape.form = npu::SamplingForm::kOnePass;
  shape.batch = 3, shape.block = 16, shape.vocab = 2000, shape.chunk = 512, shape.temperature = 0.8;
  const npu::Device device = *npu::load_device("plena-64", {{"array.noise_lanes", "16"}, {"numerics.logits", "bf16"}});
  const npu::SamplingKernel kernel = *npu::build_sampling(device, shape);
  npu::SamplingInputs in = npu::random_sampling_inputs(kernel.shape, 21);
  for (float& z : in.logits) z = bf16_to_f32(f32_to_bf16(z));
  npu::Machine machine = *npu::Machine::create(kernel.machine);
  npu::load_sampling(kernel, in, {}, machine.state());
  const auto result = machine.run(kernel.program);
  ASSERT_TRUE(result.has_value()) << result.error().message();
  const npu::SamplingOutputs out = npu::read_sampling(kernel, machine.state());
  std::size_t compared = 0;
  for (std::size_t p = 0; p < in.positions.size(); ++p) {
    if (in.undecided[p] == 0) continue;
    ScoreRequest request;
    request.temperature = shape.temperature;
    request.rng = {in.seed, in.streams[p] >> 2};
    request.step = in.first_step;
    request.rules = {{static_cast<TokenId>(in.except), false, true}};
    const cpu::ReductionSpec spec(request, shape.vocab);
    std::vector<float> row(&in.logits[p * 2000], &in.logits[p * 2000] + 2000);
    const auto position = static_cast<Position>(in.positions[p]);
    const RowScore score =
        cpu::finish(spec, position, cpu::reduce_chunk(*cpu::default_kernel_set(), spec, position, 0, row));
    EXPECT_EQ(out.predicted[p], static_cast<std::uint32_t>(score.token)) << "position " << p;
    ++compared;
  }
  EXPECT_GT(compared, 24u);
}

TEST(NpuDraws, AccuracySimulatorDrawsInItsPrecision) {
  const std::shared_ptr<const Model> model = *Model::load(test::random_source({.architecture = "llada"}));
  const auto graph = [model](StepShape shape) { return model->build(shape); };
  using npu::accuracy::SamplingPrecision;
  for (const SamplingPrecision precision : {SamplingPrecision::kF32, SamplingPrecision::kBF16}) {
    npu::accuracy::NumericsProfile profile = *npu::accuracy::load_numerics("bf16");
    profile.device = "plena-64-wide";
    profile.sampling = precision;
    const auto backend = *npu::accuracy::AccuracyBackend::create(model->desc(), graph, model->weights(), profile, 2);
    const auto cache = *backend->make_cache(12);
    SequenceStep step;
    step.cache = cache.get();
    for (Position p = 0; p < 12; ++p) step.plan.rows.push_back({p, static_cast<TokenId>((9 + 11 * p) % 80)});
    step.plan.visible = {{0, 12}};
    for (std::int32_t i = 0; i < 12; ++i) step.plan.scored.push_back(i);
    step.request.logits = true;
    step.request.temperature = 2;
    step.request.rng.seed = 4;
    const auto scores = *backend->forward({&step, 1});
    const auto vocab = static_cast<std::size_t>(model->desc().vocab);
    const auto vlen = static_cast<std::size_t>((*profile.machine()).vlen);
    int raised = 0;
    for (std::size_t i = 0; i < 12; ++i) {
      const std::span<const float> row = std::span<const float>(scores.front().logits).subspan(i * vocab, vocab);
      RowScore expected = scores.front().rows[i];
      expected.token = 0;
      npu::accuracy::reduce_draw(precision, row, vlen, step.request, expected);
      EXPECT_EQ(scores.front().rows[i].token, expected.token);
      EXPECT_EQ(scores.front().rows[i].confidence, expected.confidence);
      raised += expected.token != std::ranges::max_element(row) - row.begin() ? 1 : 0;
    }
    EXPECT_GT(raised, 0);
  }
}

}  // namespace
}  // namespace dllm
