// Layer norms, activations, and rows from outside: programs against the reference, bit for bit.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/to_size.h"
#include "graph/builder.h"
#include "npu_compiler/compiler/weights_image.h"
#include "npu_compiler/testing/reference/bench.h"

namespace dllm::npu {
namespace {

using test::small_machine, test::TinyWeights;

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu, Activation::kTanh,
                                       Activation::kRelu};

/// Two inputs; norms, every activation with and without a gate; rows of all and of some go out.
Graph network(std::int64_t width, StepShape shape) {
  GraphBuilder b(shape);
  const ValueId x = b.hidden_in(width, "x"), y = b.hidden_in(width, "y");
  ValueId z = b.layer_norm(x, b.weight("norm1", {width}), b.weight("norm1.bias", {width}), 1e-5f, "n");
  for (const Activation activation : kActivations) {
    const auto name = std::to_string(static_cast<int>(activation));
    const ValueId a = b.glu(z, kNoId, "a" + name, activation), gated = b.glu(a, y, "g" + name, activation);
    z = b.add(z, gated, "z" + name);
  }
  const ValueId wide = b.linear(z, b.weight("w", {width, 2 * width}), "wide", b.weight("w.bias", {2 * width}));
  const ValueId n2 =
      b.layer_norm(wide, b.weight("norm2", {2 * width}), b.weight("norm2.bias", {2 * width}), 1e-6f, "m");
  b.hidden_out(b.gather_scored(n2, "scored"));
  return b.take();
}

class NetworkOps : public testing::TestWithParam<std::tuple<std::int64_t, std::int64_t>> {
 protected:
  /// Rows with large means, zeros, and one constant row: its variance is zero.
  static std::vector<float> inputs(std::int64_t rows, std::int64_t width) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> all;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < 2 * width; ++c)
        all.push_back(r == 0 ? 1.5f : r == 1 ? 20.0f + normal(random) : 3 * normal(random));
    return all;
  }
};

/// What the program leaves at a value's place, or in memory at a place of HiddenPlace.
Bf16 lane_of(const std::vector<Bf16>& all, std::size_t first, std::size_t stride, std::size_t row, std::size_t lane) {
  return all[first + (lane / 64 * stride + row) * 64 + lane % 64];
}

TEST_P(NetworkOps, ProgramsComputeWhatTheReferenceDoes) {
  const auto [width, rows] = GetParam();
  const MachineConfig machine = small_machine();
  const auto build = [&](StepShape shape) { return network(width, shape); };
  const std::int64_t scored = 2;
  const Graph graph = build({rows, scored});
  const TinyWeights weights(graph);
  const ModelLayout layout = *make_layout(build({1, 1}), weights.present(), machine, rows);
  Machine run = *Machine::create(machine);
  write_weights(graph, layout, weights.views(), run.state().hbm.data());
  SequenceSpec sequence{.positions = test::range(0, static_cast<Position>(rows)),
                        .visible = {{0, static_cast<Position>(rows)}},
                        .scored = {0, static_cast<std::int32_t>(rows) - 1},
                        .cache = layout.weight_bytes,
                        .capacity = rows};
  const StepSpec spec{{sequence}};
  const std::vector<float> hidden = inputs(rows, width);
  reference::Executor executor(layout, weights.views());
  reference::Cache cache;
  const auto expected = executor.run(graph, spec, std::vector<TokenId>(to_size(rows)), {&cache}, hidden);
  for (const bool keep : {true, false}) {
    const auto compiled = compile_step(graph, layout, spec, {.keep_values = keep});
    ASSERT_TRUE(compiled) << compiled.error().message();
    ASSERT_EQ(compiled->hidden_in.size(), 2U);
    ASSERT_EQ(compiled->hidden_out.size(), 1U);
    MachineState& state = run.state();
    for (const HiddenPlace& place : compiled->hidden_in)
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < width; ++c) {
          const Bf16 bits = f32_to_bf16(hidden[to_size(2 * r * width + place.first + c)]);
          std::memcpy(state.hbm.data() + place.address + 2 * ((c / 64 * place.stride + r) * 64 + c % 64), &bits, 2);
        }
    for (const HbmBlob& blob : compiled->constants)
      std::memcpy(state.hbm.data() + blob.address, blob.bytes.data(), blob.bytes.size());
    state.reset_registers();
    ASSERT_TRUE(run.run(compiled->program));
    for (std::size_t id = 0; keep && id < graph.values.size(); ++id) {
      const ValuePlace& place = compiled->values[id];
      for (std::size_t r = 0; r < expected.values[id].size(); ++r)
        for (std::size_t lane = 0; lane < expected.values[id][r].size(); ++lane) {
          Bf16 got = 0;
          const std::size_t at = to_size(place.row) * 64;
          got = run.state().vram[at + (lane / 64 * to_size(place.stride) + r) * 64 + lane % 64];
          ASSERT_EQ(bf16_to_f32(got), bf16_to_f32(expected.values[id][r][lane]))
              << graph.values[id].name << " row " << r << " lane " << lane;
        }
    }
    const HiddenPlace& out = compiled->hidden_out[0];
    const auto& last = expected.values[to_size(out.value)];
    ASSERT_EQ(last.size(), 2U);
    std::vector<Bf16> stored(to_size(layout.slabs({.width = 2 * width}) * out.stride * 64));
    std::memcpy(stored.data(), state.hbm.data() + out.address, 2 * stored.size());
    for (std::size_t r = 0; r < last.size(); ++r)
      for (std::size_t lane = 0; lane < to_size(2 * width); ++lane)
        ASSERT_EQ(lane_of(stored, 0, to_size(out.stride), r, lane), last[r][lane]) << lane;
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, NetworkOps,
                         testing::Values(std::tuple{48, 5}, std::tuple{64, 4}, std::tuple{150, 7}, std::tuple{20, 2}));

/// The functions themselves, in BF16: GELU's two forms differ by up to 5e-4, tanh is odd and bounded, rows of a norm
/// have mean 0 and variance 1.
TEST(NetworkFunctions, AreNearTheirDefinitions) {
  constexpr std::int64_t kWidth = 64, kRows = 16;
  const MachineConfig machine = small_machine();
  GraphBuilder b({kRows, 0});
  const ValueId x = b.hidden_in(kWidth, "x");
  std::vector<ValueId> made;
  for (const Activation a : kActivations) made.push_back(b.glu(x, kNoId, std::to_string(static_cast<int>(a)), a));
  made.push_back(b.layer_norm(x, b.weight("one", {kWidth}), b.weight("zero", {kWidth}), 1e-5f, "n"));
  for (const ValueId id : made) b.hidden_out(id);
  const Graph graph = b.take();
  TinyWeights weights(graph);
  weights.fill("one", [](std::size_t) { return 1.0f; });
  weights.fill("zero", [](std::size_t) { return 0.0f; });
  const ModelLayout layout = *make_layout(graph, weights.present(), machine, kRows);
  std::vector<float> hidden;
  for (std::int64_t i = 0; i < kRows * kWidth; ++i)
    hidden.push_back(bf16_to_f32(f32_to_bf16(-8.0f + 16.0f * static_cast<float>(i) / (kRows * kWidth))));
  SequenceSpec sequence{.positions = test::range(0, kRows), .visible = {{0, kRows}}, .scored = {}, .capacity = kRows};
  reference::Executor executor(layout, weights.views());
  reference::Cache cache;
  const auto values = executor.run(graph, {{sequence}}, std::vector<TokenId>(kRows), {&cache}, hidden).values;
  const auto got = [&](std::size_t which, std::size_t i) {
    return static_cast<double>(bf16_to_f32(values[to_size(made[which])][i / kWidth][i % kWidth]));
  };
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const auto v = static_cast<double>(hidden[i]);
    const double rounding = std::abs(v) / 100 + 1e-4;
    EXPECT_NEAR(got(0, i), v / (1 + std::exp(-v)), rounding) << v;
    EXPECT_NEAR(got(1, i), v / 2 * (1 + std::tanh(std::sqrt(2 / 3.14159265358979) * (v + 0.044715 * v * v * v))),
                rounding);
    EXPECT_NEAR(got(2, i), v / 2 * (1 + std::erf(v / std::sqrt(2.0))), rounding) << v;
    EXPECT_NEAR(got(3, i), std::tanh(v), 0.01) << v;
    EXPECT_EQ(got(4, i), std::max(v, 0.0)) << v;
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    double mean = 0, squares = 0;
    for (std::size_t c = 0; c < kWidth; ++c) mean += got(5, r * kWidth + c) / kWidth;
    for (std::size_t c = 0; c < kWidth; ++c) squares += std::pow(got(5, r * kWidth + c), 2) / kWidth;
    EXPECT_NEAR(mean, 0, 0.03) << r;
    EXPECT_NEAR(squares, 1, 0.05) << r;
  }
}

}  // namespace
}  // namespace dllm::npu
