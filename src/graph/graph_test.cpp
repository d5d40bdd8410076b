#include "graph/graph.h"

#include <gtest/gtest.h>

#include "graph/builder.h"

namespace dllm {
namespace {

Graph small_graph() {
  GraphBuilder b({4, 2});
  const WeightId table = b.weight("token_embd.weight", {8, 16});
  const WeightId gain = b.weight("norm.weight", {8});
  const WeightId wide = b.weight("up.weight", {8, 24});
  const WeightId narrow = b.weight("down.weight", {24, 8});
  const ValueId x = b.embed(table, "x");
  const ValueId n = b.rms_norm(x, gain, 1e-5f, "n");
  const ValueId g = b.linear(n, wide, "g");
  const ValueId u = b.linear(n, wide, "u");
  const ValueId d = b.linear(b.glu(g, u, "s"), narrow, "d");
  const ValueId sum = b.add(x, d, "sum");
  b.score_head(b.gather_scored(sum, "scored"), table);
  return b.take();
}

TEST(Graph, BuilderMakesSoundGraphs) {
  const Graph graph = small_graph();
  EXPECT_EQ(validate(graph), "");
  EXPECT_EQ(graph.values.back().rows, 2);
}

TEST(Graph, LifetimesEndAtTheLastReader) {
  const Graph graph = small_graph();
  const auto lives = lifetimes(graph);
  EXPECT_EQ(lives[0].first, 0);  // x: embed .. residual add
  EXPECT_EQ(lives[0].last, 6);
  EXPECT_EQ(lives[1].last, 3);  // n: read by both projections
}

TEST(Graph, ValidateNamesWhatIsWrong) {
  Graph reads_early = small_graph();
  std::swap(reads_early.ops[0], reads_early.ops[1]);
  EXPECT_NE(validate(reads_early).find("before it is written"), std::string::npos);
  Graph wrong_width = small_graph();
  wrong_width.values[2].width = 23;
  EXPECT_NE(validate(wrong_width).find("linear"), std::string::npos);
}

TEST(Graph, ValidateChecksRegionsAndFactors) {
  const auto made = [](std::int64_t factor_width, WeightId gain, std::int32_t groups) {
    GraphBuilder b({4, 2});
    const WeightId table = b.weight("token_embd.weight", {8, 16});
    const WeightId factor = b.weight("factor.weight", {factor_width});
    const ValueId token = b.embed(table, "token", 2.f, EmbedPart::kToken);
    const ValueId mixed = b.embed(table, "mixed", 2.f, EmbedPart::kMixture);
    const ValueId normed = b.rms_norm(b.add(token, mixed, "sum"), gain, 1e-6f, "n", groups);
    const ValueId x = b.select(normed, token, "x");
    const ValueId scaled =
        b.scale(x, {.x = kNoId, .factor = 0.5f, .context = factor, .canvas = kNoId, .out = kNoId}, "scaled");
    b.score_head(b.gather_scored(scaled, "scored"), table, kNoId, 30.f);
    return b.take();
  };
  EXPECT_EQ(validate(made(1, kNoId, 2)), "");
  EXPECT_NE(validate(made(2, kNoId, 2)).find("scale"), std::string::npos);
  EXPECT_NE(validate(made(1, kNoId, 3)).find("rms_norm"), std::string::npos);
  std::vector<std::string_view> features;
  for (const Op& op : made(1, kNoId, 2).ops) features.push_back(beyond_plain(op));
  EXPECT_EQ(features[2], "") << "an addition";
  EXPECT_EQ(features[4], "two regions");
  EXPECT_EQ(features.back(), "soft-capped logits");
  for (const Op& op : small_graph().ops) EXPECT_EQ(beyond_plain(op), "");
}

TEST(Graph, AnActivationMayBeAlone) {
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    GraphBuilder b({4, 2});
    const WeightId table = b.weight("token_embd.weight", {8, 16});
    b.score_head(b.gather_scored(b.glu(b.embed(table, "x"), kNoId, "act", activation), "scored"), table);
    Graph graph = b.take();
    EXPECT_EQ(validate(graph), "");
    EXPECT_EQ(inputs(graph.ops[1]), std::vector<ValueId>{0});
    EXPECT_EQ(op_name(graph.ops[1]), activation == Activation::kSilu ? "silu" : "gelu");
    EXPECT_NE(beyond_plain(graph.ops[1]), "");
    graph.values[1].width = 7;
    EXPECT_NE(validate(graph), "");
  }
}

TEST(Graph, HiddenStatesGoOutColumnAfterColumn) {
  GraphBuilder b({4, 2});
  const WeightId table = b.weight("token_embd.weight", {8, 16});
  const ValueId x = b.embed(table, "x"), y = b.hidden_in(4, "y");
  b.hidden_out(x);
  b.hidden_out(y);
  b.score_head(b.gather_scored(x, "scored"), table);
  Graph graph = b.take();
  EXPECT_EQ(validate(graph), "");
  EXPECT_EQ(hidden_width(graph), 12);
  EXPECT_EQ(hidden_width(small_graph()), 0);
  EXPECT_EQ(std::get<op::HiddenOut>(graph.ops[3]).first, 8);
  EXPECT_EQ(inputs(graph.ops[2]), std::vector<ValueId>{x});
  EXPECT_TRUE(outputs(graph.ops[2]).empty());
  for (const std::size_t i : {1, 2}) EXPECT_NE(beyond_plain(graph.ops[i]).find("hidden states"), std::string::npos);
  std::get<op::HiddenOut>(graph.ops[3]).first = 7;
  EXPECT_NE(validate(graph).find("hidden_out"), std::string::npos) << "columns overlap";

  GraphBuilder two({4, 2});
  const WeightId other = two.weight("token_embd.weight", {8, 16});
  const ValueId all = two.embed(other, "x");
  two.hidden_out(all);
  two.hidden_out(two.gather_scored(all, "scored"));
  EXPECT_NE(validate(two.take()), "") << "rows and scored rows";
}

TEST(Graph, ConvolutionsFitTheirKernels) {
  const auto made = [](std::int32_t group, std::int64_t kernels, std::int32_t taps) {
    GraphBuilder b({4, 2});
    const WeightId table = b.weight("token_embd.weight", {8, 16});
    const ValueId x = b.embed(table, "x");
    const ValueId dynamic = b.linear(x, b.weight("proj.weight", {8, kernels}), "dynamic");
    const WeightId base = b.weight("base", {8, 3, 2});
    b.score_head(b.gather_scored(b.block_conv(x, dynamic, {0, 0, base, taps, group, 1, 0}, "y"), "scored"), table);
    return b.take();
  };
  EXPECT_EQ(validate(made(2, 24, 3)), "");
  EXPECT_NE(validate(made(3, 24, 3)), "") << "no divisor of 8";
  EXPECT_NE(validate(made(2, 23, 3)), "");
  EXPECT_NE(validate(made(2, 16, 2)), "") << "the base has three taps";
}

TEST(Graph, OperatorsOfNetworksFitTheirValues) {
  GraphBuilder b({4, 2});
  const ValueId x = b.hidden_in(8, "x"), y = b.hidden_in(8, "y");
  const ValueId n = b.layer_norm(x, b.weight("gain", {8}), b.weight("bias", {8}), 1e-5f, "n");
  const ValueId gated = b.glu(n, y, "gated", Activation::kTanh),
                plain = b.glu(gated, kNoId, "plain", Activation::kRelu);
  b.hidden_out(b.gather_scored(plain, "scored"));
  Graph graph = b.take();
  EXPECT_EQ(validate(graph), "");
  EXPECT_EQ(hidden_in_width(graph), 16);
  EXPECT_EQ(std::get<op::HiddenIn>(graph.ops[1]).first, 8);
  EXPECT_TRUE(hands_out_scored(graph));
  EXPECT_FALSE(hands_out_scored(small_graph()));
  EXPECT_EQ(op_name(graph.ops[2]), "layer_norm");
  EXPECT_EQ(op_name(graph.ops[3]), "tanh_glu");
  EXPECT_EQ(op_name(graph.ops[4]), "relu");
  for (const std::size_t i : {2, 3, 4}) EXPECT_NE(beyond_plain(graph.ops[i]), "") << i;
  Graph wrong = graph;
  std::get<op::HiddenIn>(wrong.ops[1]).first = 7;
  EXPECT_NE(validate(wrong).find("hidden_in"), std::string::npos) << "columns overlap";
  wrong = graph;
  wrong.weights[1].shape = {7};
  EXPECT_NE(validate(wrong).find("layer_norm"), std::string::npos) << "a bias of another width";
}

TEST(Graph, HadamardTransformsFitTheirValues) {
  const auto made = [](std::int64_t order) {
    GraphBuilder b({4, 2});
    const WeightId table = b.weight("token_embd.weight", {24, 16});
    b.score_head(b.gather_scored(b.hadamard(b.embed(table, "x"), order, "turned"), "scored"), table);
    return b.take();
  };
  for (const std::int64_t order : {2, 4, 8, 12, 24}) EXPECT_EQ(validate(made(order)), "") << order;
  EXPECT_NE(validate(made(16)), "") << "no divisor of 24";
  EXPECT_NE(validate(made(3)), "") << "no Hadamard matrix";
  EXPECT_NE(validate(made(1)), "");
  const Graph graph = made(8);
  EXPECT_EQ(op_name(graph.ops[1]), "hadamard");
  EXPECT_EQ(beyond_plain(graph.ops[1]), "");
  EXPECT_EQ(untransformed(graph, outputs(graph.ops[1])[0]), inputs(graph.ops[1])[0]);
  EXPECT_EQ(untransformed(graph, 0), 0);
  EXPECT_EQ(made(0).ops.size(), 3U) << "order 0: none";
}

}  // namespace
}  // namespace dllm
