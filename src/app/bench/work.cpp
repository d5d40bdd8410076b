#include "app/bench/work.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <variant>

namespace dllm::app {
namespace {

const WeightView& view(const Weights& weights, WeightId id) { return weights[static_cast<std::size_t>(id)]; }

/// Number of (row, visible key) pairs.
double visible_pairs(const ModelDesc& desc, const StepSize& size) {
  const std::int64_t block = desc.causal_block;
  const auto sequences = static_cast<double>(size.sequences);
  if (block == 0) return sequences * static_cast<double>(size.rows) * static_cast<double>(size.keys);
  double pairs = 0;
  for (std::int64_t p = size.keys - size.rows; p < size.keys; ++p)
    pairs += static_cast<double>(std::min(size.keys, (p / block + 1) * block));
  return sequences * pairs;
}

/// Experts that `rows` rows touch if each chooses `used` of `experts` uniformly, as with the random weights of
/// make-model; rows of a trained model agree more and touch fewer.
double touched(double experts, double used, double rows) { return experts * (1 - std::pow(1 - used / experts, rows)); }

void add_experts(const Graph& graph, const op::Experts& o, const Weights& weights, double rows, StepWork& work) {
  const double used = static_cast<double>(graph.value(o.route).width) / 2;
  for (const WeightId id : {o.gate, o.up, o.down}) {
    const WeightView& stack = view(weights, id);
    const auto experts = static_cast<double>(stack.shape[2]);
    work.linear_ops += 2.0 * rows * used * static_cast<double>(element_count(stack.shape)) / experts;
    work.weight_bytes += static_cast<double>(stack.data.size()) / experts * touched(experts, used, rows);
  }
}

}  // namespace

StepWork work_of(const Graph& graph, const Weights& weights, const ModelDesc& desc, const StepSize& size) {
  StepWork work;
  const double pairs = visible_pairs(desc, size);
  const double rows = static_cast<double>(size.shape().rows);
  const double scored = static_cast<double>(size.shape().scored);
  for (const Op& op : graph.ops) {
    if (const auto* linear = std::get_if<op::Linear>(&op)) {
      const WeightView& weight = view(weights, linear->weight);
      work.linear_ops += 2.0 * rows * static_cast<double>(element_count(weight.shape));
      work.weight_bytes += static_cast<double>(weight.data.size());
    } else if (const auto* experts = std::get_if<op::Experts>(&op)) {
      add_experts(graph, *experts, weights, rows, work);
    } else if (const auto* head = std::get_if<op::ScoreHead>(&op)) {
      const WeightView& weight = view(weights, head->weight);
      work.head_ops += 2.0 * scored * static_cast<double>(element_count(weight.shape));
      if (size.scored_rows() > 0) work.weight_bytes += static_cast<double>(weight.data.size());
    } else if (const auto* attention = std::get_if<op::Attention>(&op)) {
      work.attention_ops += 4.0 * pairs * static_cast<double>(attention->heads) * attention->head_dim;
    }
  }
  return work;
}

TensorType main_type(const Graph& graph, const Weights& weights) {
  std::map<TensorType, std::size_t> bytes;
  const auto count = [&](WeightId id) { bytes[view(weights, id).type] += view(weights, id).data.size(); };
  for (const Op& op : graph.ops) {
    if (const auto* linear = std::get_if<op::Linear>(&op)) count(linear->weight);
    if (const auto* experts = std::get_if<op::Experts>(&op))
      for (const WeightId id : {experts->gate, experts->up, experts->down}) count(id);
  }
  TensorType best = TensorType::kF32;
  std::size_t most = 0;
  for (const auto& [type, size] : bytes)
    if (size > most) best = type, most = size;
  return best;
}

}  // namespace dllm::app
