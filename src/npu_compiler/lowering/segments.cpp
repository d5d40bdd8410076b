#include "npu_compiler/lowering/segments.h"

#include <algorithm>

namespace dllm::npu {

std::string_view beyond_programs(const dllm::Op& op) {
  const auto* attention = std::get_if<op::Attention>(&op);
  const bool missing = std::holds_alternative<op::BlockConv>(op) || std::holds_alternative<op::Gather>(op) ||
                       (attention != nullptr && attention->view != op::RowView::kPlan);
  return missing ? beyond_plain(op) : std::string_view();
}

std::vector<Segment> segments(const Graph& graph) {
  std::vector<Segment> found;
  std::size_t first = 0;
  for (std::size_t i = 1; i < graph.ops.size(); ++i) {
    if (!std::holds_alternative<op::Attention>(graph.ops[i])) continue;
    found.push_back({first, i});
    first = i;
  }
  found.push_back({first, graph.ops.size()});
  return found;
}

std::vector<ValueId> waiting_values(const Graph& graph, std::size_t at) { return waiting_values(lifetimes(graph), at); }

std::vector<ValueId> waiting_values(std::span<const Lifetime> lives, std::size_t at) {
  std::vector<ValueId> found;
  const auto op = static_cast<std::int32_t>(at);
  for (std::size_t id = 0; id < lives.size(); ++id)
    if (lives[id].first < op && lives[id].last >= op) found.push_back(static_cast<ValueId>(id));
  return found;
}

std::int64_t routing_block(const Graph& graph) {
  std::int64_t block = 1;
  for (const Op& any : graph.ops)
    if (const auto* o = std::get_if<op::Route>(&any); o != nullptr && o->capacity > 0)
      block = std::max<std::int64_t>(block, o->block);
  return block;
}

}  // namespace dllm::npu
