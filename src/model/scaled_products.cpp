#include "model/scaled_products.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace dllm {
namespace {

constexpr std::string_view kProductScale = ".scale", kInputScale = ".input_scale", kOfWeight = ".weight";

/// "blk.0.attn_q.weight" of "blk.0.attn_q.scale"; empty if the name does not end so.
std::string matrix_of(std::string_view name, std::string_view end) {
  return name.ends_with(end) ? fmt::format("{}{}", name.substr(0, name.size() - end.size()), kOfWeight) : "";
}

/// Of Linear and ScoreHead, the operators with one matrix.
WeightId product_weight(const Op& op) {
  if (const auto* linear = std::get_if<op::Linear>(&op)) return linear->weight;
  if (const auto* head = std::get_if<op::ScoreHead>(&op)) return head->weight;
  return kNoId;
}

}  // namespace

std::vector<std::string> take_product_scales(const Graph& graph, std::vector<SourceTensor>& tensors, int& left_out) {
  std::set<std::string_view> declared, products;
  for (const WeightDecl& decl : graph.weights) declared.insert(decl.name);
  for (const Op& op : graph.ops)
    if (const WeightId weight = product_weight(op); weight != kNoId) products.insert(graph.weight(weight).name);
  std::vector<std::string> scales;
  for (const SourceTensor& tensor : tensors)
    if (!declared.contains(tensor.name) && products.contains(matrix_of(tensor.name, kProductScale)))
      scales.push_back(tensor.name);
  left_out += static_cast<int>(std::erase_if(tensors, [&](const SourceTensor& tensor) {
    return !declared.contains(tensor.name) && products.contains(matrix_of(tensor.name, kInputScale));
  }));
  return scales;
}

Graph with_product_scales(Graph graph, std::span<const std::string> scales) {
  if (scales.empty()) return graph;
  std::map<std::string, WeightId> by_matrix;
  for (const std::string& scale : scales) {
    graph.weights.push_back({.name = scale, .shape = {1}, .required = true});
    by_matrix.emplace(matrix_of(scale, kProductScale), static_cast<WeightId>(graph.weights.size()) - 1);
  }
  for (Op& op : std::exchange(graph.ops, {})) {
    const WeightId weight = product_weight(op);
    const auto found = weight == kNoId ? by_matrix.end() : by_matrix.find(graph.weight(weight).name);
    if (found != by_matrix.end()) {
      auto* const linear = std::get_if<op::Linear>(&op);
      ValueId& x = linear != nullptr ? linear->x : std::get<op::ScoreHead>(op).x;
      const Value from = graph.value(x);
      graph.values.push_back({fmt::format("{}.scaled", from.name), from.rows, from.width});
      const auto scaled = static_cast<ValueId>(graph.values.size()) - 1;
      graph.ops.push_back(op::Scale{x, 1.f, found->second, found->second, scaled});
      x = scaled;
    }
    graph.ops.push_back(op);
  }
  return graph;
}

}  // namespace dllm
