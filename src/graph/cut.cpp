#include "graph/cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "base/to_size.h"

namespace dllm {
namespace {

/// The layer whose cache an operator writes or reads.
std::optional<std::int32_t> cached_layer(const Op& op) {
  if (const auto* store = std::get_if<op::StoreKv>(&op)) return store->layer;
  if (const auto* attention = std::get_if<op::Attention>(&op)) return attention->layer;
  return std::nullopt;
}

/// By operator: whether it stands between a cache's writer and its reader.
std::vector<bool> open_caches(const Graph& graph) {
  std::map<std::int32_t, std::pair<std::size_t, std::size_t>> spans;
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (const auto layer = cached_layer(graph.ops[i])) spans.try_emplace(*layer, i, i).first->second.second = i;
  std::vector<bool> open(graph.ops.size() + 1, false);
  for (const auto& [layer, span] : spans)
    for (std::size_t i = span.first + 1; i <= span.second; ++i) open[i] = true;
  return open;
}

std::size_t tail_of(const Graph& graph) {
  const auto scores = [](const Op& op) {
    return std::holds_alternative<op::GatherScored>(op) || std::holds_alternative<op::ScoreHead>(op);
  };
  return to_size(std::ranges::find_if(graph.ops, scores) - graph.ops.begin());
}

}  // namespace

CutCosts cut_costs(const Graph& graph) {
  CutCosts costs{tail_of(graph), {}};
  costs.numbers.assign(costs.tail, 0);
  const std::vector<Lifetime> lives = lifetimes(graph);
  for (std::size_t v = 0; v < lives.size(); ++v)
    for (auto i = to_size(lives[v].first) + 1; i < costs.tail && i <= to_size(lives[v].last); ++i)
      costs.numbers[i] += graph.values[v].width;
  const std::vector<bool> open = open_caches(graph);
  for (std::size_t i = 0; i < costs.tail; ++i)
    if (i == 0 || open[i]) costs.numbers[i] = CutCosts::kNone;
  return costs;
}

std::vector<ValueId> handed_over(const Graph& graph, std::size_t begin, std::size_t end) {
  std::vector<ValueId> values;
  const std::vector<Lifetime> lives = lifetimes(graph);
  for (std::size_t v = 0; v < lives.size(); ++v) {
    const auto first = to_size(lives[v].first), last = to_size(lives[v].last);
    if (first >= begin && first < end && last >= end) values.push_back(static_cast<ValueId>(v));
  }
  return values;
}

std::vector<std::int32_t> layers_of(const Graph& graph) {
  std::set<std::int32_t> layers;
  for (const Op& op : graph.ops)
    if (const auto layer = cached_layer(op)) layers.insert(*layer);
  return {layers.begin(), layers.end()};
}

Expected<GraphCut> cut_graph(const Graph& graph, std::int64_t last) {
  const std::vector<std::int32_t> layers = layers_of(graph);
  assert(last > 0 && last < static_cast<std::int64_t>(layers.size()));
  if (hidden_width(graph) > 0)
    return Error{ErrorCode::kUnsupported, "a model that hands out hidden states is not cut in two", "", ""};
  const std::int32_t first_behind = layers[layers.size() - to_size(last)];
  std::size_t end_of_front = 0, begin_of_back = graph.ops.size();
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const auto layer = cached_layer(graph.ops[i]);
    if (!layer) continue;
    if (*layer < first_behind)
      end_of_front = i;
    else
      begin_of_back = std::min(begin_of_back, i);
  }
  // The last of the cheapest places: a layer's first norm belongs to the layer.
  const CutCosts costs = cut_costs(graph);
  std::int64_t least = CutCosts::kNone;
  std::size_t place = 0;
  for (std::size_t i = end_of_front + 1; i <= begin_of_back && i < costs.tail; ++i)
    if (costs.numbers[i] != CutCosts::kNone && costs.numbers[i] <= least) least = costs.numbers[i], place = i;
  if (place == 0)
    return Error{ErrorCode::kUnsupported, fmt::format("the model cannot be cut in front of layer {}", first_behind + 1),
                 "", "ask for another number of layers"};
  GraphCut cut{graph, graph};
  const auto middle = static_cast<std::ptrdiff_t>(place);
  cut.front.ops.assign(graph.ops.begin(), graph.ops.begin() + middle);
  cut.back.ops.clear();
  std::int64_t column = 0;
  for (const ValueId value : handed_over(graph, 0, place)) {
    cut.front.ops.emplace_back(op::HiddenOut{value, column});
    cut.back.ops.emplace_back(op::HiddenIn{value, column});
    column += graph.values[to_size(value)].width;
  }
  cut.back.ops.insert(cut.back.ops.end(), graph.ops.begin() + middle, graph.ops.end());
  return cut;
}

}  // namespace dllm
