// What the splits have in common.
#include "graph/split.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "base/to_size.h"
#include "graph/split_weights.h"

namespace dllm {

UnitRange share_of(std::int64_t units, int rank, int ranks) {
  const std::int64_t first = units * rank / ranks;
  return {first, units * (rank + 1) / ranks - first};
}

namespace {

std::int64_t outputs_of(const Shape& shape) { return shape.size() > 1 ? shape[1] : shape[0]; }

Shape with_outputs(Shape shape, std::int64_t count) {
  shape[shape.size() > 1 ? 1 : 0] = count;
  return shape;
}

}  // namespace

WeightId RankGraphMaker::use(const WeightPart& part) {
  const auto source = to_size(part.source);
  if (made_.parts[source].count == 0) made_.parts[source] = part;
  const auto known = std::ranges::find(made_.parts, part);
  if (known != made_.parts.end()) return static_cast<WeightId>(known - made_.parts.begin());
  made_.parts.push_back(part);
  made_.graph.weights.push_back(whole_.weights[source]);
  return static_cast<WeightId>(made_.parts.size() - 1);
}

WeightId RankGraphMaker::all_of(WeightId id) {
  if (id == kNoId) return kNoId;
  return use({id, 0, outputs_of(whole_.weight(id).shape)});
}

WeightId RankGraphMaker::part_of(WeightId id, UnitRange range) {
  if (id == kNoId) return kNoId;
  return use({id, range.first, range.count});
}

Op RankGraphMaker::with_weights(Op op) {
  const auto own = [this](WeightId& id) { id = all_of(id); };
  std::visit(
      [&own](auto& o) {
        if constexpr (requires { o.table; }) own(o.table);
        if constexpr (requires { o.gain; }) own(o.gain);
        if constexpr (requires { o.weight; }) own(o.weight);
        if constexpr (requires { o.bias; }) own(o.bias);
        if constexpr (requires { o.factors; }) own(o.factors);
        if constexpr (std::is_same_v<std::decay_t<decltype(o)>, op::Scale>) own(o.context), own(o.canvas);
        if constexpr (requires { o.expert_scale; }) own(o.expert_scale);
        if constexpr (requires { o.down; }) own(o.gate), own(o.up), own(o.down);
        if constexpr (requires { o.base; }) own(o.base);
      },
      op);
  return op;
}

void RankGraphMaker::add_head(const op::ScoreHead& head, ValueId x) {
  const std::int64_t vocab = head_vocab(whole_);
  const UnitRange chunks = share_of((vocab + kSplitChunk - 1) / kSplitChunk, split_.rank, split_.ranks);
  const UnitRange tokens{chunks.first * kSplitChunk,
                         std::min(vocab, chunks.end() * kSplitChunk) - chunks.first * kSplitChunk};
  op::ScoreHead own = head;
  own.x = x;
  own.first = tokens.first;
  own.vocab = vocab;
  own.weight = tokens.count > 0 ? part_of(head.weight, tokens) : kNoId;
  own.bias = tokens.count > 0 ? part_of(head.bias, tokens) : kNoId;
  add(own);
}

RankGraph RankGraphMaker::take() {
  for (std::size_t i = 0; i < made_.parts.size(); ++i) {
    WeightDecl& decl = made_.graph.weights[i];
    decl.shape = with_outputs(decl.shape, made_.parts[i].count);
    decl.required = decl.required && made_.parts[i].count > 0;
  }
  return std::move(made_);
}

RankGraph split_graph(const Graph& graph, const RankSplit& split) {
  switch (split.kind) {
    case SplitKind::kOutputs:
      return split_outputs(graph, split);
    case SplitKind::kRows:
      return split_rows(graph, split);
    case SplitKind::kLayers:
      break;
  }
  return split_layers(graph, split);
}

std::int64_t gathered_bytes(const RankGraph& own, int rank, int ranks, double stored_bytes, double code_bytes) {
  const Graph& graph = own.graph;
  const std::int64_t rows = graph.shape.rows, others = rows - share_of(rows, rank, ranks).count;
  double bytes = 0;
  std::vector<std::int64_t> stored;
  for (const Op& op : graph.ops) {
    if (const auto* store = std::get_if<op::StoreKv>(&op)) {
      if (stored.size() <= to_size(store->layer)) stored.resize(to_size(store->layer) + 1);
      stored[to_size(store->layer)] = 2 * graph.value(store->k).width;
    }
    const auto* gather = std::get_if<op::Gather>(&op);
    if (gather == nullptr) continue;
    if (gather->kind == GatherKind::kStored) {
      bytes += stored_bytes * static_cast<double>(others * stored[to_size(gather->layer)]);
    } else if (gather->kind == GatherKind::kRows) {
      const Value& out = graph.value(gather->out);
      const std::int64_t received = out.rows - share_of(out.rows, rank, ranks).count;
      bytes += (gather->codes && out.width % 32 == 0 ? code_bytes : 4.0) * static_cast<double>(received * out.width);
    } else {
      const Value& out = graph.value(gather->out);
      const bool coded =
          gather->codes && std::ranges::all_of(gather->parts, [](std::int64_t p) { return p % 32 == 0; });
      bytes += (coded ? code_bytes : 4.0) * static_cast<double>(out.rows * (out.width - gather->parts[to_size(rank)]));
    }
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace dllm
