#include "graph/cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/to_size.h"
#include "graph/plan.h"
#include "graph/testing/tiny_graph.h"

namespace dllm {
namespace {

struct CutShape {
  std::int64_t vocab = 500, width = 64, layers = 4, heads = 4, kv_heads = 2, head_dim = 16, ffn = 96;
  std::int64_t rope_dims = 12;
  RopeLayout layout = RopeLayout::kHalfSplit;
  bool head_norms = true;

  WeightId bias(GraphBuilder& b, const std::string& name, std::int64_t n) const { return b.weight(name, {n}); }
};

Graph uncut_graph(StepShape step = {8, 3}) { return tiny_transformer(CutShape(), step); }

/// The layers whose weights a graph reads, by their names; -1: a weight of no layer.
std::set<int> layers_read(const Graph& graph) {
  std::set<int> layers;
  for (const Op& op : graph.ops)
    std::visit(
        [&](const auto& o) {
          const auto add = [&](WeightId id) {
            const std::string& name = graph.weights[to_size(id)].name;
            layers.insert(name.starts_with("blk.") ? name[4] - '0' : -1);
          };
          if constexpr (requires { o.gain; }) add(o.gain);
          if constexpr (requires { o.weight; }) add(o.weight);
        },
        op);
  return layers;
}

TEST(CutGraph, HasEachOperatorOnceAndWholeLayers) {
  const Graph whole = uncut_graph();
  EXPECT_EQ(layers_of(whole), (std::vector<std::int32_t>{0, 1, 2, 3}));
  for (int last = 1; last < 4; ++last) {
    const auto cut = cut_graph(whole, last);
    ASSERT_TRUE(cut);
    ASSERT_EQ(validate(cut->front), "");
    ASSERT_EQ(validate(cut->back), "");
    (void)make_plan(cut->front);
    (void)make_plan(cut->back);
    std::set<int> front, back = {-1};
    for (int layer = 0; layer < 4; ++layer) (layer < 4 - last ? front : back).insert(layer);
    EXPECT_EQ(layers_read(cut->front), front);
    EXPECT_EQ(layers_read(cut->back), back);
    ASSERT_EQ(cut->front.ops.size() + cut->back.ops.size(), whole.ops.size() + 2);
    // One value crosses: the residual stream.
    const auto* out = std::get_if<op::HiddenOut>(&cut->front.ops.back());
    const auto* in = std::get_if<op::HiddenIn>(&cut->back.ops.front());
    ASSERT_TRUE(out != nullptr && in != nullptr);
    EXPECT_EQ(out->x, in->out);
    EXPECT_EQ(hidden_width(cut->front), 64);
    EXPECT_EQ(hidden_in_width(cut->back), 64);
  }
}

TEST(CutGraph, IsNotBetweenWriterAndReaderOfACache) {
  const Graph whole = uncut_graph();
  const CutCosts costs = cut_costs(whole);
  ASSERT_EQ(costs.numbers.size(), costs.tail);
  EXPECT_TRUE(std::holds_alternative<op::GatherScored>(whole.ops[costs.tail]));
  EXPECT_EQ(costs.numbers.front(), CutCosts::kNone) << "nothing would be in front of it";
  int readers = 0;
  for (std::size_t i = 1; i < costs.tail; ++i) {
    const bool reads = std::holds_alternative<op::Attention>(whole.ops[i]);
    EXPECT_EQ(costs.numbers[i] == CutCosts::kNone, reads) << i;
    readers += reads ? 1 : 0;
  }
  EXPECT_EQ(readers, 4);
}

TEST(CutGraph, IsTheSameForEveryShape) {
  const auto one = cut_graph(uncut_graph({1, 1}), 2), other = cut_graph(uncut_graph({40, 0}), 2);
  ASSERT_TRUE(one && other);
  EXPECT_EQ(one->front.ops.size(), other->front.ops.size());
  EXPECT_EQ(other->front.shape.rows, 40);
}

/// A value of the embedding that a later layer reads crosses beside the residual stream.
TEST(CutGraph, AllThatIsReadBehindItCrosses) {
  Graph whole = uncut_graph();
  const ValueId embedded = std::get<op::Embed>(whole.ops.front()).out;
  for (Op& op : whole.ops)
    if (auto* add = std::get_if<op::Add>(&op); add != nullptr && whole.values[to_size(add->out)].name == "blk.3.res2")
      add->a = embedded;
  ASSERT_EQ(validate(whole), "");
  const auto cut = cut_graph(whole, 2);
  ASSERT_TRUE(cut);
  EXPECT_EQ(validate(cut->back), "");
  EXPECT_EQ(hidden_width(cut->front), 128);
  std::vector<std::int64_t> columns;
  for (const Op& op : cut->back.ops)
    if (const auto* in = std::get_if<op::HiddenIn>(&op)) columns.push_back(in->first);
  EXPECT_EQ(columns, (std::vector<std::int64_t>{0, 64}));
}

TEST(CutGraph, RefusesWhatItCannotCut) {
  Graph hands_out = uncut_graph();
  const ValueId x = std::get<op::Embed>(hands_out.ops.front()).out;
  hands_out.ops.insert(hands_out.ops.begin() + 1, op::HiddenOut{x, 0});
  const auto refused = cut_graph(hands_out, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);

  // The last layer attends to the cache of the first.
  Graph shares = uncut_graph();
  for (Op& op : shares.ops)
    if (auto* attention = std::get_if<op::Attention>(&op); attention != nullptr && attention->layer == 3)
      attention->layer = 0;
  const auto none = cut_graph(shares, 1);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().what, "the model cannot be cut in front of layer 4");
}

}  // namespace
}  // namespace dllm
