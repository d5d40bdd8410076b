// Steps under other mappings than the one by rule compute the same bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "npu_compiler/testing/reference/bench.h"

namespace dllm::npu {
namespace {

using test::Bench;
using test::range;
using test::small_machine;
using test::TinyShape;

std::int64_t some(std::mt19937& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

/// Any mapping that the small machine can hold: every panel of at least 4 lanes fits a buffer of 64 rows.
Mapping random_mapping(std::mt19937& random) {
  constexpr std::int64_t kUnit = 16, kRows = 1024 / 2;
  Mapping mapping;
  mapping.kv_rows = kUnit * some(random, 64 / kUnit, 256 / kUnit);
  mapping.weight_rows = kUnit * some(random, 64 / kUnit, (kRows - mapping.kv_rows) / kUnit);
  mapping.chunk_tiles = some(random, 1, 4);
  mapping.expert_slots = some(random, 1, 8);
  for (std::int64_t n = 4; n <= 256; n += 4)
    for (std::int64_t k = 1; k <= 4; ++k)
      if (some(random, 0, 1) == 1) mapping.panels.push_back({n, k, std::int64_t{4} << some(random, 0, 4)});
  return mapping;
}

std::string text(const Mapping& m) {
  return std::to_string(m.weight_rows) + " " + std::to_string(m.kv_rows) + " " + std::to_string(m.chunk_tiles) + " " +
         std::to_string(m.expert_slots);
}

const test::TinyExperts kRouted = {.count = 12, .used = 3, .width = 24};

TEST(MappedSteps, RandomMappingsComputeTheSame) {
  std::mt19937 random(20261126);
  bool apart = false, over = false, chunked = false;
  for (int i = 0; i < 24; ++i) {
    const Mapping mapping = random_mapping(random);
    SCOPED_TRACE(text(mapping));
    TinyShape shape;
    if (i % 2 == 1) shape.routed = kRouted;
    Bench bench(shape, small_machine(), 96, true, {}, &mapping);
    EXPECT_LE(bench.layout().chunk_tiles, mapping.chunk_tiles);
    const MramPlan& mram = bench.layout().mram;
    EXPECT_LE(mram.expert_slots, mapping.expert_slots);
    for (const WeightPlace& w : bench.layout().weights)
      if (w.use == WeightUse::kMatrix && (w.expert_stride == 0 || w.streamed)) {
        EXPECT_LE(w.matrix.panel * w.matrix.k_tiles, mapping.weight_rows);
        for (const PanelChoice& p : mapping.panels)
          if (p.n == w.matrix.n && p.k_tiles == w.matrix.k_tiles) {
            EXPECT_LE(w.matrix.panel, p.lanes);
          }
      }
    if (i % 2 == 1) {
      apart = apart || mram.experts_apart;
      over = over || (mram.expert_slots > 0 && !mram.experts_apart);
    }
    chunked = chunked || bench.layout().chunk_tiles < 3;
    bench.add_cache(64);
    bench.run({{bench.sequence(0, range(0, 37), {{0, 37}}, {1, 2, 3, 30})}}, {0}, false);
    bench.run({{bench.sequence(0, range(20, 10), {{0, 37}}, {0, 9})}}, {0}, false);
  }
  EXPECT_TRUE(apart && over && chunked) << "rings apart from the panels and over them, and chunks";
}

TEST(MappedSteps, MappingsOfOtherDevicesAreRefused) {
  const auto refusal = [](const Mapping& mapping) {
    const Graph graph = test::tiny_graph({}, {1, 1});
    const auto layout =
        make_layout(graph, std::vector<bool>(graph.weights.size(), true), small_machine(), 64, &mapping);
    return layout ? std::string() : layout.error().message();
  };
  EXPECT_EQ(refusal({.weight_rows = 384, .kv_rows = 128}), "");
  EXPECT_NE(refusal({.weight_rows = 400, .kv_rows = 128}).find("the device has 1024"), std::string::npos);
  EXPECT_NE(refusal({.weight_rows = 376, .kv_rows = 128}).find("multiples of 16"), std::string::npos);
  EXPECT_NE(refusal({.weight_rows = 384, .kv_rows = 32}).find("rows per K/V buffer"), std::string::npos);
  EXPECT_NE(refusal({.weight_rows = 0, .kv_rows = 128}).find("sram.matrix_tiles"), std::string::npos);
}

/// A sequence whose rows take turns, cut anywhere, with values that wait in memory, computes what it does at once.
TEST(MappedSteps, RowsInTurn) {
  std::mt19937 random(7);
  for (int i = 0; i < 12; ++i) {
    TinyShape shape{.layers = 3, .head_norms = i % 3 == 0};
    if (i % 2 == 1) shape.routed = kRouted, shape.routed.shared_width = 24;
    Bench bench(shape, small_machine(), 96);
    for (int cache = 0; cache < 2; ++cache) bench.add_cache(64);
    const auto cuts = [&](std::int64_t rows) {
      std::vector<RowPart> parts;
      for (std::int64_t first = 0; first < rows;) {
        const std::int64_t count = std::min(rows - first, 4 * some(random, 1, 6));
        parts.push_back({1, first, count});
        first += count;
      }
      return parts;
    };
    const StepSpec whole{{bench.sequence(0, range(0, 45), {{0, 45}}, {1, 2, 3, 30, 44}, i % 4 == 3 ? 8 : 0)}};
    const std::vector<RowPart> first = cuts(45);
    EXPECT_EQ(bench.run_parts(whole, {0}, first), first.size());
    // Scattered rows, and a second sequence at once.
    StepSpec both{{bench.sequence(0, {2, 3, 8, 20, 21, 22, 30, 41}, {{0, 45}}, {0, 7}),
                   bench.sequence(1, range(0, 9), {{0, 9}}, {8})}};
    std::vector<RowPart> parts = cuts(8);
    parts.emplace_back(1);
    EXPECT_EQ(bench.run_parts(both, {0, 1}, parts), parts.size());
  }
}

/// A single sequence that vector SRAM cannot hold.
TEST(MappedSteps, LongSequencesAreCutByThemselves) {
  MachineConfig machine = small_machine();
  machine.vram_elements = std::uint64_t{64} * 528;
  for (const bool routed : {false, true}) {
    TinyShape shape;
    if (routed) shape.routed = kRouted;
    Bench bench(shape, machine, 128);
    bench.add_cache(128);
    const StepSpec spec{{bench.sequence(0, range(0, 120), {{0, 120}}, {1, 2, 3, 30, 119})}};
    const Graph graph = test::tiny_graph(shape, {120, 5});
    const auto whole = compile_step(graph, bench.layout(), spec, {});
    ASSERT_FALSE(whole);
    EXPECT_EQ(whole.error().code, ErrorCode::kUsage);
    EXPECT_GT(bench.run_parts(spec, {0}), 1u);
  }
}

/// Lists of experts do not lie where later parts find their tokens.
TEST(MappedSteps, PartsKeepTheTokensOfLaterOnes) {
  Bench bench({.routed = kRouted}, small_machine(), 64);
  StepSpec spec;
  std::vector<std::size_t> caches;
  for (std::size_t s = 0; s < 3; ++s) {
    bench.add_cache(40);
    spec.sequences.push_back(bench.sequence(s, range(0, 20), {{0, 20}}, {0, 19}));
    caches.push_back(s);
  }
  EXPECT_EQ(bench.run_parts(spec, caches, {RowPart(1), RowPart(2)}), 2u);
}

TEST(MappedSteps, PartsMustBeTheStep) {
  Bench bench({}, small_machine(), 64);
  bench.add_cache(40);
  const StepSpec spec{{bench.sequence(0, range(0, 20), {{0, 20}}, {0})}};
  const auto build = [](StepShape shape) { return test::tiny_graph({}, shape); };
  const std::vector<std::vector<RowPart>> wrong = {
      {RowPart(2)}, {RowPart(1), RowPart(1)}, {{1, 0, 8}}, {{1, 0, 8}, {1, 12, 8}}, {{1, 0, 16}, {1, 16, 8}},
      {RowPart(0)}};
  for (const std::vector<RowPart>& parts : wrong)
    EXPECT_FALSE(compile_parts(build, bench.layout(), spec, parts)) << parts.size();
  EXPECT_TRUE(compile_parts(build, bench.layout(), spec, std::vector<RowPart>{{1, 0, 8}, {1, 8, 12}}));
}

/// Rows that must be together are not cut: those that decide factors, and blocks that choose their experts together.
TEST(MappedSteps, SomeRowsAreNotCut) {
  const MachineConfig machine = small_machine();
  const auto sizes = [](const std::vector<std::vector<RowPart>>& cuts) {
    std::vector<std::size_t> counts;
    for (const auto& cut : cuts) counts.push_back(cut.size());
    return counts;
  };
  const Graph plain = test::tiny_graph({}, {40, 0});
  EXPECT_EQ(sizes(row_cuts(plain, machine, range(0, 40))), (std::vector<std::size_t>{2, 4, 5, 10}));
  MachineConfig smooth = machine;
  smooth.smoothing.keys = SmoothingCentre::kMean;
  EXPECT_TRUE(row_cuts(plain, smooth, range(0, 40)).empty());
  TinyShape blocks{.routed = kRouted};
  blocks.routed.capacity = 6, blocks.routed.block = 16;
  const Graph routed = test::tiny_graph(blocks, {40, 0});
  for (const auto& cut : row_cuts(routed, machine, range(0, 40)))
    for (const RowPart& part : cut) EXPECT_EQ(part.first % 16, 0);
  EXPECT_FALSE(row_cuts(routed, machine, range(0, 40)).empty());
  EXPECT_TRUE(row_cuts(routed, machine, range(8, 40)).empty());
}

}  // namespace
}  // namespace dllm::npu
