#include "graph/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "graph/plan.h"
#include "graph/testing/tiny_graph.h"

namespace dllm {
namespace {

struct SplitShape {
  std::int64_t vocab = 5000, width = 128, layers = 3, heads = 8, kv_heads = 4, head_dim = 16, ffn = 160;
  std::int64_t rope_dims = 12;
  RopeLayout layout = RopeLayout::kHalfSplit;
  bool head_norms = true;

  WeightId bias(GraphBuilder& b, const std::string& name, std::int64_t n) const { return b.weight(name, {n}); }
};

Graph whole_graph(const SplitShape& shape = {}, StepShape step = {32, 32}) { return tiny_transformer(shape, step); }

std::vector<RankGraph> all_ranks(const Graph& graph, SplitKind kind, int ranks) {
  std::vector<RankGraph> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(split_graph(graph, {kind, rank, ranks}));
  return all;
}

std::vector<op::Gather> gathers(const Graph& graph) {
  std::vector<op::Gather> all;
  for (const Op& op : graph.ops)
    if (const auto* o = std::get_if<op::Gather>(&op)) all.push_back(*o);
  return all;
}

constexpr SplitKind kSplits[] = {SplitKind::kOutputs, SplitKind::kRows, SplitKind::kLayers};

TEST(SplitGraph, EveryRanksGraphIsValidAndGathersTheSame) {
  for (const SplitKind kind : kSplits)
    for (const std::int64_t kv_heads : {1, 2, 4, 8})
      for (const int ranks : {1, 2, 3, 4, 5, 8, 16}) {
        const Graph whole = whole_graph({.kv_heads = kv_heads});
        const auto all = all_ranks(whole, kind, ranks);
        const auto first = gathers(all.front().graph);
        for (const RankGraph& one : all) {
          ASSERT_EQ(validate(one.graph), "") << static_cast<int>(kind) << ' ' << kv_heads << ' ' << ranks;
          ASSERT_EQ(one.parts.size(), one.graph.weights.size());
          (void)make_plan(one.graph);
          const auto own = gathers(one.graph);
          ASSERT_EQ(own.size(), first.size());
          for (std::size_t i = 0; i < own.size(); ++i) {
            EXPECT_EQ(own[i].kind, first[i].kind);
            EXPECT_EQ(own[i].parts, first[i].parts);
            EXPECT_EQ(own[i].codes, first[i].codes);
            EXPECT_EQ(own[i].scored, first[i].scored);
          }
        }
      }
}

/// Every output of a matrix is on a rank; on how many at most.
int most_holders(const Graph& whole, const std::vector<RankGraph>& all, std::size_t weight) {
  const Shape& shape = whole.weights[weight].shape;
  std::vector<int> holders(static_cast<std::size_t>(shape.size() > 1 ? shape[1] : shape[0]), 0);
  for (const RankGraph& one : all)
    for (const WeightPart& part : one.parts)
      if (part.source == static_cast<WeightId>(weight))
        for (std::int64_t i = part.first; i < part.first + part.count; ++i) ++holders[static_cast<std::size_t>(i)];
  EXPECT_GE(*std::ranges::min_element(holders), 1) << whole.weights[weight].name;
  return *std::ranges::max_element(holders);
}

TEST(SplitGraph, MatricesAreOnOneRankEach) {
  const Graph whole = whole_graph();
  for (const SplitKind kind : {SplitKind::kOutputs, SplitKind::kLayers})
    for (const int ranks : {2, 3, 4}) {
      const auto all = all_ranks(whole, kind, ranks);
      for (std::size_t i = 0; i < whole.weights.size(); ++i) {
        const bool table = whole.weights[i].name == "embd";
        if (whole.weights[i].shape.size() < 2 || table) continue;
        EXPECT_EQ(most_holders(whole, all, i), 1) << whole.weights[i].name << ' ' << ranks;
      }
    }
  // With fewer KV heads than ranks, ranks that share one have its keys and values.
  const Graph few = whole_graph({.kv_heads = 2});
  const auto all = all_ranks(few, SplitKind::kOutputs, 4);
  for (std::size_t i = 0; i < few.weights.size(); ++i)
    if (few.weights[i].name == "blk.0.k") {
      EXPECT_EQ(most_holders(few, all, i), 2);
    }
}

TEST(SplitGraph, OutputsAreGatheredFourTimesALayer) {
  const Graph whole = whole_graph();
  for (const int ranks : {2, 4}) {
    const auto all = gathers(split_graph(whole, {SplitKind::kOutputs, 1, ranks}).graph);
    EXPECT_EQ(all.size(), 4U * 3);
    // Attention and the gated unit are read by products alone; sums are read by additions.
    EXPECT_EQ(std::ranges::count_if(all, [](const op::Gather& o) { return o.codes; }), 2 * 3);
  }
}

TEST(SplitGraph, RowsAreGatheredOnceALayerAndBeforeTheHead) {
  const auto all = gathers(split_graph(whole_graph(), {SplitKind::kRows, 0, 2}).graph);
  EXPECT_EQ(std::ranges::count_if(all, [](const op::Gather& o) { return o.kind == GatherKind::kStored; }), 3);
  ASSERT_EQ(std::ranges::count_if(all, [](const op::Gather& o) { return o.kind == GatherKind::kRows; }), 1);
  EXPECT_TRUE(all.back().codes && all.back().scored) << "scored rows, as the head reads them";
  // 5,000 tokens are five chunks: the first of six ranks has none, and needs no activations.
  EXPECT_FALSE(gathers(split_graph(whole_graph(), {SplitKind::kRows, 0, 6}).graph).back().codes);
}

TEST(SplitGraph, LayersMeetAtOneValue) {
  const Graph whole = whole_graph({.layers = 6});
  const auto all = all_ranks(whole, SplitKind::kLayers, 3);
  const auto handed = gathers(all.front().graph);
  EXPECT_EQ(handed.size(), 3U) << "between ranks, and to the head";
  for (const op::Gather& o : handed) {
    EXPECT_EQ(std::ranges::count_if(o.parts, [](std::int64_t part) { return part > 0; }), 1);
    EXPECT_EQ(*std::ranges::max_element(o.parts), 128);
  }
  for (const RankGraph& one : all)
    EXPECT_EQ(
        std::ranges::count_if(one.graph.ops, [](const Op& op) { return std::holds_alternative<op::Attention>(op); }),
        2);
}

TEST(SplitGraph, ReceivedBytes) {
  // Rows: 16 of 32 rows from the other rank, of 3 layers with K and V of 4 heads of 16, in halves; and the head's rows.
  const RankGraph rows = split_graph(whole_graph(), {SplitKind::kRows, 0, 2});
  EXPECT_EQ(gathered_bytes(rows, 0, 2, 2.0), 16 * 3 * 2 * 64 * 2 + 16 * 128 * 4);
  // Dream-7B, K and V in F16: 0.92 MB of them, and codes with a scale of every 32 for the head.
  const Graph dream = whole_graph(
      {.vocab = 152064, .width = 3584, .layers = 28, .heads = 28, .kv_heads = 4, .head_dim = 128, .ffn = 18944});
  EXPECT_EQ(gathered_bytes(split_graph(dream, {SplitKind::kRows, 1, 2}), 1, 2, 2.0, 1.125),
            16 * 28 * 2 * 512 * 2 + 16 * 3584 * 9 / 8);
  // Layers: rank 0 hands two values over, and receives what the others hand to the head.
  const RankGraph layers = split_graph(whole_graph(), {SplitKind::kLayers, 0, 3});
  EXPECT_EQ(gathered_bytes(layers, 0, 3, 2.0), 2 * 32 * 128 * 4);
}

TEST(SplitGraph, SharesAreDisjointAndEqual) {
  for (const std::int64_t units : {0, 1, 5, 8, 33})
    for (const int ranks : {1, 2, 3, 8}) {
      std::int64_t at = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const UnitRange share = share_of(units, rank, ranks);
        EXPECT_EQ(share.first, at);
        EXPECT_LE(std::abs(share.count * ranks - units), ranks);
        at = share.end();
      }
      EXPECT_EQ(at, units);
    }
}

}  // namespace
}  // namespace dllm
