#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "graph/split.h"

namespace dllm {

/// A rank's graph in the making. Values have their ids in the whole graph as long as they are the same.
class RankGraphMaker {
 public:
  RankGraphMaker(const Graph& whole, const RankSplit& split) : whole_(whole), split_(split) {
    made_.graph.shape = whole.shape;
    made_.graph.values = whole.values;
    made_.graph.weights = whole.weights;
    made_.parts.resize(whole.weights.size());
    for (std::size_t i = 0; i < made_.parts.size(); ++i) made_.parts[i].source = static_cast<WeightId>(i);
  }

  const Graph& whole() const { return whole_; }
  const RankSplit& split() const { return split_; }
  Graph& graph() { return made_.graph; }

  void add(Op op) { made_.graph.ops.push_back(std::move(op)); }
  ValueId new_value(ValueId like, std::int64_t width) {
    Value value = whole_.value(like);
    value.width = width;
    made_.graph.values.push_back(std::move(value));
    return static_cast<ValueId>(made_.graph.values.size() - 1);
  }

  /// All outputs of a weight; kNoId stays.
  WeightId all_of(WeightId id);
  /// Some of them, not none.
  WeightId part_of(WeightId id, UnitRange range);
  /// The operator with all of its weights.
  Op with_weights(Op op);
  /// The LM head of this rank: its chunks of the vocabulary.
  void add_head(const op::ScoreHead& head, ValueId x);

  RankGraph take();

 private:
  WeightId use(const WeightPart& part);

  const Graph& whole_;
  RankSplit split_;
  RankGraph made_;
};

RankGraph split_outputs(const Graph& graph, const RankSplit& split);
RankGraph split_rows(const Graph& graph, const RankSplit& split);
RankGraph split_layers(const Graph& graph, const RankSplit& split);

}  // namespace dllm
