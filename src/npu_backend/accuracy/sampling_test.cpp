// Draws of the accuracy simulator against those of the sampling program on the functional machine: tokens in every
// precision, confidences where the machine computes them.

#include "npu_backend/accuracy/sampling.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "npu_backend/functional/host_reduction.h"
#include "npu_compiler/testing/reference/bench.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/machine.h"
#include "npu_core/sampling/kernel.h"
#include "npu_core/sampling/reference.h"

namespace dllm::npu::accuracy {
namespace {

struct Ladder {
  SamplingPrecision precision;
  DrawPrecision keys;
  const char* logits;  ///< in memory
};
constexpr Ladder kLadder[] = {{SamplingPrecision::kF64, DrawPrecision::kF64, "bf16"},
                              {SamplingPrecision::kF32, DrawPrecision::kF32, "bf16"},
                              {SamplingPrecision::kBF16, DrawPrecision::kBF16, "bf16"},
                              {SamplingPrecision::kMXFP8, DrawPrecision::kBF16, "mxfp8_e4m3:32:ocp"}};

/// The sampling program, run once: one chunk per vector, and a vocabulary that is not a multiple of a block.
struct ProgramRun {
  SamplingKernel kernel;
  SamplingInputs in;
  SamplingOutputs out;
  std::size_t vocab = 0;

  ProgramRun(const Ladder& ladder, double temperature, bool tempered) {
    SamplingShape shape;
    shape.form = SamplingForm::kOnePass;
    shape.batch = 2, shape.block = 9, shape.vocab = 1010, shape.chunk = 64;
    shape.temperature = temperature, shape.precision = ladder.keys, shape.tempered = tempered;
    const Device device = *load_device("plena-64", {{"array.noise_lanes", "8"}, {"numerics.logits", ladder.logits}});
    kernel = *build_sampling(device, shape);
    vocab = static_cast<std::size_t>(shape.vocab);
    in = random_sampling_inputs(kernel.shape, 5);
    for (float& z : in.logits) z = bf16_to_f32(f32_to_bf16(z));
    Machine machine = *Machine::create(kernel.machine);
    load_sampling(kernel, in, {}, machine.state());
    const auto result = machine.run(kernel.program);
    if (!result) throw std::runtime_error(result.error().message());
    out = read_sampling(kernel, machine.state());
  }
};

TEST(Draws, EqualTheSamplingProgram) {
  for (const Ladder& ladder : kLadder)
    for (const double temperature : {1.0, 0.6})
      for (const auto distribution : {ScoreDistribution::kRaw, ScoreDistribution::kSampled}) {
        SCOPED_TRACE(testing::Message() << ladder.logits << " " << name_of(ladder.keys) << ", T " << temperature);
        const ProgramRun run(ladder, temperature, distribution == ScoreDistribution::kSampled);
        NumericsProfile profile;
        profile.logits = *OperandFormat::from_name("bf16");
        profile.sampling = ladder.precision;
        ScoreRequest request;
        request.temperature = temperature;
        request.distribution = distribution;
        request.step = run.in.first_step;
        request.rules = {{static_cast<TokenId>(run.in.except), false, true}};
        std::size_t compared = 0, raised = 0;
        for (std::size_t p = 0; p < run.in.positions.size(); ++p) {
          std::vector<float> row(&run.in.logits[p * run.vocab], &run.in.logits[p * run.vocab] + run.vocab);
          store_logits(profile, row);
          request.rng = {run.in.seed, run.in.streams[p] >> 2};
          RowScore score = reduce_on_host(row, request, static_cast<Position>(run.in.positions[p])).score;
          if (ladder.precision != SamplingPrecision::kF64) {
            ASSERT_TRUE(draws_on_device(ladder.precision, request));
            reduce_draw(ladder.precision, row, 64, request, score);
          }
          if (run.in.undecided[p] != 0) {
            EXPECT_EQ(run.out.predicted[p], static_cast<std::uint32_t>(score.token)) << "position " << p;
            ++compared;
            raised += score.token != std::ranges::max_element(row) - row.begin() ? 1 : 0;
          }
          const std::size_t item = p / 9;
          if (ladder.keys == DrawPrecision::kBF16 && item == 1) {
            EXPECT_EQ(bf16_to_f32(run.out.confidences[p % 9]), static_cast<float>(score.confidence)) << p;
          }
        }
        EXPECT_GT(compared, 8u);
        EXPECT_GT(raised, 2u) << "draws that differ from the arg-max";
      }
}

/// A compiled step whose head draws on chip, BF16 between slabs.
TEST(Draws, EqualTheCompiledStep) {
  for (const std::int64_t vocab : {200, 192}) {
    test::Bench bench({.vocab = vocab}, test::small_machine());
    bench.add_cache(40);
    ScoreRequest request;
    request.temperature = 0.7;
    request.step = 9;
    request.rng = {0x123456789abcdef, 6};
    request.rules = {{31, false, true}};
    const StepSpec spec{{bench.sequence(0, test::range(0, 37), {{0, 37}}, {1, 2, 3, 17, 29, 30, 31})}};
    const std::size_t rows = 7;
    const auto inputs = [&](const StepProgram& step, MachineState& state) {
      std::uint32_t word = step.draws;
      for (const std::int32_t row : spec.sequences[0].scored) state.int_mem[word++] = static_cast<std::uint32_t>(row);
      for (std::size_t r = 0; r < rows; ++r) state.int_mem[word++] = rng_stream(request.rng, RngPurpose::kToken);
      for (const std::uint32_t value : {static_cast<std::uint32_t>(request.rng.seed),
                                        static_cast<std::uint32_t>(request.rng.seed >> 32), request.step, 31u})
        state.int_mem[word++] = value;
    };
    std::size_t raised = 0;
    bench.run_draws(spec, 0, request.temperature, inputs,
                    [&](const StepProgram& step, const MachineState& state, const reference::Rows& logits) {
                      ASSERT_EQ(logits.size(), rows);
                      for (std::size_t r = 0; r < rows; ++r) {
                        std::vector<float> row;
                        for (const Bf16 z : logits[r]) row.push_back(bf16_to_f32(z));
                        RowScore score{.position = spec.sequences[0].scored[r], .token = 0};
                        reduce_draw(SamplingPrecision::kBF16, row, static_cast<std::size_t>(test::small_machine().vlen),
                                    request, score);
                        EXPECT_EQ(state.int_mem[step.predicted + r], static_cast<std::uint32_t>(score.token));
                        EXPECT_EQ(static_cast<double>(bf16_to_f32(state.fp_mem[step.confidence + r])),
                                  score.confidence);
                        raised += score.token != std::ranges::max_element(row) - row.begin() ? 1 : 0;
                      }
                    });
    EXPECT_GT(raised, 1u);
  }
}

/// The noise has the right distribution in the precisions that resolve it: frequencies of eight tokens against their
/// probabilities, by the sum of squared deviations in units of their variance.
TEST(Draws, FollowTheSoftmax) {
  const std::vector<float> logits = {0.5f, -1, 2, 1.25f, -0.75f, 0, 1, -2};
  constexpr int kDraws = 20000;
  ScoreRequest request;
  request.temperature = 0.5;
  double total = 0;
  for (const float z : logits) total += std::exp(2 * static_cast<double>(z));
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < kDraws; ++i) {
    RowScore score{.position = i, .token = 0};
    reduce_draw(SamplingPrecision::kF32, logits, 64, request, score);
    ++counts[static_cast<std::size_t>(score.token)];
  }
  double deviation = 0;
  for (std::size_t t = 0; t < logits.size(); ++t) {
    const double expected = kDraws * std::exp(2 * static_cast<double>(logits[t])) / total;
    deviation += (counts[t] - expected) * (counts[t] - expected) / expected;
  }
  EXPECT_LT(deviation, 24.3) << "chi-squared with 7 degrees of freedom exceeds this once in a thousand";
}

TEST(Draws, RequestsThatTheHostDraws) {
  ScoreRequest request;
  request.temperature = 1;
  EXPECT_TRUE(draws_on_device(SamplingPrecision::kBF16, request));
  EXPECT_FALSE(draws_on_device(SamplingPrecision::kF64, request));
  const auto refused = [&](auto change) {
    ScoreRequest other = request;
    change(other);
    return !draws_on_device(SamplingPrecision::kBF16, other);
  };
  EXPECT_TRUE(refused([](ScoreRequest& r) { r.temperature = 0; }));
  EXPECT_TRUE(refused([](ScoreRequest& r) { r.top_k = 4; }));
  EXPECT_TRUE(refused([](ScoreRequest& r) { r.top_p = 0.9; }));
  EXPECT_TRUE(refused([](ScoreRequest& r) { r.min_p = 0.1; }));
  EXPECT_TRUE(refused([](ScoreRequest& r) { r.rules = {{3, true, false}}; }));
  EXPECT_TRUE(refused([](ScoreRequest& r) { r.adjustments.tokens.push_back({.token = 1}); }));
}

}  // namespace
}  // namespace dllm::npu::accuracy
