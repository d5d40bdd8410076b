#include "npu_compiler/lowering/phases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "npu_compiler/lowering/kept_lowering.h"
#include "npu_compiler/lowering/lanes.h"
#include "npu_compiler/lowering/slices.h"
#include "npu_compiler/workload/model_shape.h"

namespace dllm::npu {
namespace {

Graph graph_of(const char* name, std::int64_t layers) {
  ModelShape shape = *load_model_shape(name);
  shape.desc.layers = layers;
  return shape.architecture->build(shape.desc, {32, 32});
}

std::vector<std::string> names(const Graph& graph, const PhaseRules& rules) {
  std::vector<std::string> found;
  for (const Phase& phase : phases(graph, GraphPatterns(graph), rules))
    if (!phase.in_stream) found.push_back(phase_name(graph, phase));
  return found;
}

/// Every operator is in one phase, in order.
void expect_whole(const Graph& graph, const std::vector<Phase>& all) {
  std::size_t next = 0;
  for (const Phase& phase : all) {
    EXPECT_EQ(phase.first, next);
    next += phase.count;
  }
  EXPECT_EQ(next, graph.ops.size());
}

TEST(Phases, ProductsTakeWhatRunsInTheirShadow) {
  const Graph graph = graph_of("llada-8b", 1);
  const PhaseRules rules{.hlen = 128};
  const std::vector<Phase> all = phases(graph, GraphPatterns(graph), rules);
  expect_whole(graph, all);
  EXPECT_EQ(std::ranges::count_if(all, [](const Phase& p) { return p.in_stream; }), 2);  // RoPE of q and of k
  EXPECT_EQ(std::ranges::count_if(all, [](const Phase& p) { return p.streamed != Phase::kNone; }), 2);
  EXPECT_EQ(std::ranges::count_if(all, [](const Phase& p) { return p.keys_stored; }), 1);
  const auto keys = std::ranges::find_if(all, [](const Phase& p) { return p.stored_by != Phase::kNone; });
  ASSERT_NE(keys, all.end());
  ASSERT_TRUE(std::holds_alternative<op::StoreKv>(graph.ops[keys->stored_by]));
  EXPECT_EQ(std::get<op::StoreKv>(graph.ops[keys->stored_by]).k, std::get<op::Rope>(graph.ops[keys->streamed]).out);
  EXPECT_EQ(std::ranges::count_if(all, [](const Phase& p) { return p.residual.has_value(); }), 2);
  EXPECT_EQ(std::ranges::count_if(all, [](const Phase& p) { return p.gated.has_value(); }), 1);
  const std::vector<std::string> named = names(graph, rules);
  EXPECT_NE(std::ranges::find(named, "blk.0.store_kv"), named.end());
}

/// Other arrays, and other rules, are not given what is kept of the ones before.
TEST(Phases, WhatIsKeptIsWhatItWouldBe) {
  const Graph graph = graph_of("llada2-mini", 2);
  KeptLowering kept(graph);
  const PhaseRules rules[] = {
      {.hlen = 128}, {.hlen = 256}, {.hlen = 128, .overlap = false}, {.hlen = 128, .smooth = true}};
  for (int twice = 0; twice < 2; ++twice) {
    for (const std::int64_t hlen : {128, 256, 512})
      for (const std::int64_t mlen : {512, 2048}) EXPECT_EQ(kept.lanes(mlen, hlen), assign_lanes(graph, mlen, hlen));
    for (const PhaseRules& each : rules) {
      const std::vector<Phase>&found = kept.phases(each), all = phases(graph, GraphPatterns(graph), each);
      ASSERT_EQ(found.size(), all.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(found[i].count, all[i].count);
        EXPECT_EQ(found[i].streamed, all[i].streamed);
        EXPECT_EQ(found[i].keys_stored, all[i].keys_stored);
      }
    }
  }
}

TEST(Phases, OptionsAndDevicesTakeThemApart) {
  const Graph graph = graph_of("llada-8b", 1);
  const auto count = [&](const PhaseRules& rules, auto of) {
    const std::vector<Phase> all = phases(graph, GraphPatterns(graph), rules);
    expect_whole(graph, all);
    return std::ranges::count_if(all, of);
  };
  const auto streamed = [](const Phase& p) { return p.in_stream; };
  const auto residual = [](const Phase& p) { return p.residual.has_value(); };
  const auto gated = [](const Phase& p) { return p.gated.has_value(); };
  const auto stored = [](const Phase& p) { return p.keys_stored; };
  EXPECT_EQ(count({.hlen = 64}, streamed), 0);   // heads of two slots
  EXPECT_EQ(count({.hlen = 256}, streamed), 0);  // heads that do not fill theirs
  EXPECT_EQ(count({.hlen = 128, .overlap = false}, streamed), 0);
  EXPECT_EQ(count({.hlen = 128, .overlap = false}, residual), 0);
  EXPECT_EQ(count({.hlen = 128, .overlap = false}, gated), 1);
  EXPECT_EQ(count({.hlen = 128, .fuse = false}, gated), 0);
  EXPECT_EQ(count({.hlen = 128, .smooth = true}, streamed), 2);
  EXPECT_EQ(count({.hlen = 128, .smooth = true}, stored), 0);
}

/// Dream's q, k and v have biases: no other work may read them before these are added.
TEST(Phases, BiasesKeepProductsApartFromWhatReadsThem) {
  Graph graph = graph_of("llada-8b", 1);
  for (WeightDecl& weight : graph.weights) weight.required = true;
  std::size_t with = 0;
  for (Op& any : graph.ops)
    if (auto* o = std::get_if<op::Linear>(&any)) o->bias = o->weight, ++with;
  const std::vector<Phase> all = phases(graph, GraphPatterns(graph), {.hlen = 128});
  ASSERT_GT(with, 0u);
  EXPECT_TRUE(std::ranges::none_of(all, [](const Phase& p) { return p.gated || p.residual; }));
  PhaseRules absent{.hlen = 128, .absent = std::vector<bool>(graph.weights.size(), true)};
  EXPECT_TRUE(std::ranges::any_of(phases(graph, GraphPatterns(graph), absent),
                                  [](const Phase& p) { return p.gated.has_value(); }));
}

TEST(Phases, MatricesStreamInTheOrderOfTheirUse) {
  const Graph graph = graph_of("llada-8b", 1);
  const auto all = streamed_matrices(graph, phases(graph, GraphPatterns(graph), {.hlen = 128}));
  std::vector<std::string> weights;
  for (const StreamedMatrix& m : all) {
    weights.push_back(graph.weight(m.weight).name);
    if (m.second != kNoId) weights.push_back("+" + graph.weight(m.second).name);
  }
  EXPECT_EQ(weights, (std::vector<std::string>{"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
                                               "blk.0.attn_output.weight", "blk.0.ffn_gate.weight",
                                               "+blk.0.ffn_up.weight", "blk.0.ffn_down.weight", "output.weight"}));
  const Graph experts = graph_of("llada-moe-7b", 1);
  const auto some = streamed_matrices(experts, phases(experts, GraphPatterns(experts), {.hlen = 128}));
  EXPECT_EQ(std::ranges::count(some, kNoId, &StreamedMatrix::weight), 1);
}

TEST(Phases, SegmentsHaveTheirOwnPart) {
  const Graph graph = graph_of("llada-8b", 2);
  const std::vector<Segment> parts = segments(graph);
  ASSERT_EQ(parts.size(), 3u);
  std::size_t next = 0;
  for (const Segment& part : parts)
    for (const Phase& phase : phases(graph, GraphPatterns(graph), {.segment = part, .hlen = 128})) {
      EXPECT_EQ(phase.first, next);
      next += phase.count;
    }
  EXPECT_EQ(next, graph.ops.size());
}

TEST(Slices, CoverAllRowsAndColumns) {
  for (const std::int64_t columns : {1, 2, 7, 16, 32})
    for (const std::int64_t k_tiles : {1, 2, 4, 9})
      for (const std::int64_t rows : {1, 3, 32, 64, 128})
        for (const bool fresh : {false, true}) {
          const Slices s = make_slices(columns, k_tiles, rows, fresh);
          EXPECT_EQ(s.full * s.each + s.left, rows);
          EXPECT_LT(s.left, s.each);
          EXPECT_GE(s.between, 1);
          EXPECT_LE(s.lead + s.between * s.count(), columns);
          EXPECT_EQ(s.lead > 0, fresh && columns > 1);
        }
}

/// A slot of HLEN lanes per head, a power of two of slots per KV head; a longer head has lanes of its own.
TEST(Lanes, HeadsHaveSlots) {
  const Graph graph = graph_of("dream-7b", 1);  // 28 query heads on 4 KV heads, of 128
  const auto* attention = [&]() -> const op::Attention* {
    for (const Op& any : graph.ops)
      if (const auto* o = std::get_if<op::Attention>(&any)) return o;
    return nullptr;
  }();
  ASSERT_NE(attention, nullptr);
  const auto used = [&](std::int64_t mlen, std::int64_t hlen) {
    return assign_lanes(graph, mlen, hlen)[static_cast<std::size_t>(attention->q)].used();
  };
  EXPECT_EQ(used(1024, 128), 4 * 8 * 128);
  EXPECT_EQ(used(512, 128), 4 * 8 * 128);
  EXPECT_EQ(used(2048, 256), 4 * 8 * 256);
  EXPECT_EQ(used(64, 64), 28 * 128);
}

}  // namespace
}  // namespace dllm::npu
