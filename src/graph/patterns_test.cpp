#include "graph/patterns.h"

#include <gtest/gtest.h>

#include "graph/builder.h"

namespace dllm {
namespace {

/// x -> n -> g, u -> Glu -> d -> x + d -> norm, with room for a change before the graph is taken.
struct Layer {
  GraphBuilder b{{4, 4}};
  WeightId table = b.weight("token_embd.weight", {8, 16});
  WeightId gain = b.weight("norm.weight", {8});
  WeightId wide = b.weight("up.weight", {8, 24});
  WeightId narrow = b.weight("down.weight", {24, 8});
  ValueId x = b.embed(table, "x");
  ValueId n = b.rms_norm(x, gain, 1e-5f, "n");
  ValueId g = b.linear(n, wide, "g");  // operator 2
  ValueId u = b.linear(n, wide, "u");
  ValueId s = b.glu(g, u, "s");
  ValueId d = b.linear(s, narrow, "d");  // operator 5
  ValueId sum = b.add(x, d, "sum");

  Graph take() {
    b.score_head(b.gather_scored(b.rms_norm(sum, gain, 1e-5f, "last"), "scored"), table);
    Graph graph = b.take();
    EXPECT_EQ(validate(graph), "");
    return graph;
  }
};

TEST(GraphPatterns, FindsWhatALayerConsistsOf) {
  const Graph graph = Layer().take();
  const GraphPatterns patterns(graph);
  const auto gated = patterns.gated_at(2);
  ASSERT_TRUE(gated);
  EXPECT_EQ(gated->gate, &std::get<op::Linear>(graph.ops[2]));
  EXPECT_EQ(gated->up, &std::get<op::Linear>(graph.ops[3]));
  EXPECT_EQ(gated->unit, &std::get<op::Glu>(graph.ops[4]));
  EXPECT_EQ(patterns.end_of_products(2), 4u);
  EXPECT_EQ(patterns.end_of_products(3), 4u);
  const auto residual = patterns.residual_at(5);
  ASSERT_TRUE(residual);
  EXPECT_EQ(residual->ops(), 3u);
  EXPECT_EQ(residual->norm, &std::get<op::RmsNorm>(graph.ops[7]));
  for (std::size_t i = 0; i < graph.ops.size() + 2; ++i) {
    EXPECT_EQ(patterns.gated_at(i).has_value(), i == 2) << i;
    EXPECT_EQ(patterns.residual_at(i).has_value(), i == 5) << i;
  }
}

TEST(GraphPatterns, ValuesThatAreReadLaterStopThem) {
  Layer gate_read;
  gate_read.sum = gate_read.b.add(gate_read.sum, gate_read.b.linear(gate_read.g, gate_read.narrow, "again"), "more");
  EXPECT_FALSE(GraphPatterns(gate_read.take()).gated_at(2));
  Layer term_read;
  term_read.sum = term_read.b.add(term_read.sum, term_read.x, "more");
  EXPECT_FALSE(GraphPatterns(term_read.take()).residual_at(5));
}

TEST(GraphPatterns, OperandsMustBeTheProducts) {
  Graph other_input = Layer().take();
  std::get<op::Linear>(other_input.ops[3]).x = 0;
  EXPECT_FALSE(GraphPatterns(other_input).gated_at(2));
  EXPECT_EQ(GraphPatterns(other_input).end_of_products(2), 3u);
  Graph swapped = Layer().take();
  auto& unit = std::get<op::Glu>(swapped.ops[4]);
  std::swap(unit.gate, unit.up);
  EXPECT_FALSE(GraphPatterns(swapped).gated_at(2));
  Graph twice = Layer().take();
  auto& sum = std::get<op::Add>(twice.ops[6]);
  sum.a = sum.b;
  EXPECT_FALSE(GraphPatterns(twice).residual_at(5));
  Graph per_head = Layer().take();
  std::get<op::RmsNorm>(per_head.ops[7]).groups = 2;
  ASSERT_TRUE(GraphPatterns(per_head).residual_at(5));
  EXPECT_EQ(GraphPatterns(per_head).residual_at(5)->ops(), 2u) << "a norm of slices is not a norm of whole rows";
}

}  // namespace
}  // namespace dllm
