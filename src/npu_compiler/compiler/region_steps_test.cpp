// Steps of DiffusionGemma's two regions: the program's values are those of the reference, bit for bit.

#include <algorithm>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "npu_compiler/analytic/model_schedule.h"
#include "npu_compiler/compiler/attention_plan.h"
#include "npu_compiler/testing/reference/bench.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

using test::Bench;
using test::range;

/// A layer with a window, then one without, whose heads are twice as long and share one K, which is V too.
ModelShape small_gemma() {
  ModelShape shape = *load_model_shape("diffusion-gemma-tiny");
  ModelDesc& d = shape.desc;
  d.layers = 2, d.width = 80, d.ffn_width = 40, d.vocab = 70;
  d.sliding.layers = {true, false};
  d.sliding.window = 6;
  d.experts.count = 5, d.experts.width = 24;
  return shape;
}

MachineConfig machine_of(std::int64_t hlen) {
  MachineConfig m = test::small_machine();
  m.mlen = 64, m.hlen = static_cast<int>(hlen);
  m.mram_elements = std::uint64_t{64 * 64} * 48;
  m.vram_elements = std::uint64_t{64} * 8192;
  return m;
}

Bench gemma_bench(const MachineConfig& machine, const ModelShape& shape = small_gemma(), std::int64_t positions = 64) {
  return Bench([shape](StepShape step) { return shape.architecture->build(shape.desc, step); }, shape.desc.vocab,
               machine, positions, true,
               [](test::TinyWeights& weights) {
                 weights.fill("rope_freqs.weight", [](std::size_t i) { return i % 2 == 0 ? 1.0f : 8.0f; });
                 weights.fill("output_scale.weight", [](std::size_t) { return 0.75f; });
                 weights.fill("enc_layer_output_scale.weight", [](std::size_t) { return 1.5f; });
               });
}

SequenceSpec on_canvas(SequenceSpec s) {
  s.canvas = true;
  return s;
}

/// The context, a canvas that sees it, the canvas again, and a step with rows of both regions.
void run_regions(Bench& bench, bool keep_values) {
  bench.add_cache(40);
  bench.add_cache(24);
  bench.run({{bench.sequence(0, range(0, 21), {{0, 21}}, {}, 1)}}, {0}, keep_values);
  for (int step = 0; step < 2; ++step)
    bench.run({{on_canvas(bench.sequence(0, range(21, 9), {{0, 30}}, {0, 1, 4, 8}))}}, {0}, keep_values);
  bench.run({{bench.sequence(1, range(0, 7), {{0, 7}}, {6}, 1),
              on_canvas(bench.sequence(0, range(21, 9), {{0, 30}}, {2, 3}))}},
            {1, 0}, keep_values);
}

TEST(RegionSteps, EqualTheReference) {
  for (const bool keep_values : {true, false}) {
    Bench bench = gemma_bench(machine_of(64));
    run_regions(bench, keep_values);
  }
}

TEST(RegionSteps, EqualTheReferenceWithHeadsOfSeveralRows) {
  MachineConfig machine = machine_of(32);
  machine.mlen = 32, machine.vlen = 64;
  machine.mram_elements = std::uint64_t{32 * 32} * 128;
  Bench bench = gemma_bench(machine);
  run_regions(bench, true);
}

/// Windows of rows that take turns begin where those of all rows at once do.
TEST(RegionSteps, RowsInTurn) {
  Bench bench = gemma_bench(machine_of(64));
  bench.add_cache(64);
  const StepSpec context{{bench.sequence(0, range(0, 21), {{0, 21}}, {0, 20}, 1)}};
  EXPECT_EQ(bench.run_parts(context, {0}, {{1, 0, 8}, {1, 8, 4}, {1, 12, 9}}), 3u);
  const StepSpec canvas{{on_canvas(bench.sequence(0, range(21, 30), {{0, 51}}, {0, 3, 17, 29}))}};
  EXPECT_EQ(bench.run_parts(canvas, {0}, {{1, 0, 12}, {1, 12, 12}, {1, 24, 6}}), 3u);
  EXPECT_EQ(bench.run_parts(canvas, {0}, {{1, 0, 24}, {1, 24, 6}}), 2u);
}

/// All rows of the step are within a narrow window of the first one: a turn sees as many keys as without windows.
TEST(RegionSteps, TurnsArePricedWithTheWindowOfAllRows) {
  ModelShape shape = *load_model_shape("diffusion-gemma-tiny");
  const Device device = *load_device("dart-512");
  const auto price = [&](std::int32_t window, std::span<const RowPart> parts) {
    shape.desc.sliding.window = window;
    const auto cycles = ModelSchedule(shape).cycles(device, {.sequences = 1, .rows = 96, .keys = 96, .scored = 96},
                                                    {.gbps = 400}, parts);
    EXPECT_TRUE(cycles) << cycles.error().message();
    return cycles ? *cycles : 0;
  };
  const std::vector<RowPart> turns = {{1, 0, 32}, {1, 32, 32}, {1, 64, 32}};
  EXPECT_GT(price(8, turns), 0);
  EXPECT_EQ(price(8, turns), price(96, turns));
  EXPECT_EQ(price(8, {}), price(96, {}));
}

/// Vector SRAM holds some of a canvas's rows only.
TEST(RegionSteps, LongCanvasesAreCutByThemselves) {
  MachineConfig machine = machine_of(64);
  machine.vram_elements = std::uint64_t{64} * 1088;
  Bench bench = gemma_bench(machine, small_gemma(), 128);
  bench.add_cache(128);
  EXPECT_GT(bench.run_parts({{on_canvas(bench.sequence(0, range(0, 120), {{0, 120}}, {0, 31, 119}))}}, {0}), 1u);
}

TEST(RegionSteps, StreamedExpertsAndLogitsOnTheChip) {
  MachineConfig machine = machine_of(64);
  machine.mram_elements = std::uint64_t{64 * 64} * 10;
  ModelShape shape = small_gemma();
  shape.desc.experts.width = 200;
  Bench bench = gemma_bench(machine, shape);
  EXPECT_TRUE(std::ranges::any_of(bench.layout().weights, &WeightPlace::streamed));
  bench.add_cache(40);
  bench.run({{on_canvas(bench.sequence(0, range(0, 12), {{0, 12}}, {0, 5, 11}))}}, {0}, false, HeadMode::kReduced);
}

TEST(RegionSteps, MasksOfADrafterAreRefusedByName) {
  const ModelShape shape = small_gemma();
  Graph graph = shape.architecture->build(shape.desc, {1, 1});
  for (dllm::Op& any : graph.ops)
    if (auto* o = std::get_if<op::Attention>(&any)) o->view = op::RowView::kCausal;
  const auto layout = make_layout(graph, std::vector<bool>(graph.weights.size(), true), machine_of(64), 64);
  ASSERT_FALSE(layout);
  EXPECT_EQ(layout.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(layout.error().message().find("a mask of a layer's own"), std::string::npos) << layout.error().message();
}

/// Counted from the row's block, or from the plan's first row if there are no blocks.
TEST(RegionSteps, WindowsLeaveOutWhatLiesBeforeThem) {
  SequenceSpec s{.positions = range(20, 8), .visible = {{0, 28}}, .causal_block = 1, .scored = {}, .capacity = 28};
  EXPECT_TRUE(s.sees(3, 18, 6));
  EXPECT_FALSE(s.sees(3, 17, 6));
  EXPECT_FALSE(s.sees(3, 24, 6));
  EXPECT_TRUE(s.sees(3, 0, 0));
  EXPECT_EQ(plan_tiles(s, 8, 6).tiles, (std::vector<std::int64_t>{1, 2, 3}));
  s.causal_block = 0;
  EXPECT_TRUE(s.sees(7, 15, 6));
  EXPECT_FALSE(s.sees(7, 14, 6));
  EXPECT_TRUE(s.sees(0, 27, 6));
  EXPECT_EQ(plan_tiles(s, 4, 6).tiles, (std::vector<std::int64_t>{3, 4, 5, 6}));
  EXPECT_EQ(plan_tiles(s, 4).tiles.size(), 7u);
}

}  // namespace
}  // namespace dllm::npu
