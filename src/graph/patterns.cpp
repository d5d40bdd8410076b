#include "graph/patterns.h"

#include <algorithm>

#include "base/to_size.h"

namespace dllm {

GraphPatterns::GraphPatterns(const Graph& graph) : graph_(graph), lives_(lifetimes(graph)) {}

std::size_t GraphPatterns::end_of_products(std::size_t first) const {
  const ValueId x = std::get<op::Linear>(graph_.ops[first]).x;
  std::size_t end = first + 1;
  for (const op::Linear* next = at<op::Linear>(end); next != nullptr && next->x == x; next = at<op::Linear>(end)) ++end;
  return end;
}

std::optional<GatedProducts> GraphPatterns::gated_at(std::size_t first) const {
  const auto *gate = at<op::Linear>(first), *up = at<op::Linear>(first + 1);
  const auto* unit = at<op::Glu>(first + 2);
  if (gate == nullptr || up == nullptr || unit == nullptr || gate->x != up->x) return std::nullopt;
  if (unit->gate != gate->out || unit->up != up->out) return std::nullopt;
  // No kernel and no program has the others as one.
  if (unit->activation != Activation::kSilu && unit->activation != Activation::kGeluTanh) return std::nullopt;
  if (!dead_after(gate->out, first + 2) || !dead_after(up->out, first + 2)) return std::nullopt;
  return GatedProducts{gate, up, unit};
}

std::optional<ResidualProduct> GraphPatterns::residual_at(std::size_t first) const {
  const auto* product = at<op::Linear>(first);
  const auto* sum = at<op::Add>(first + 1);
  if (product == nullptr || sum == nullptr || sum->a == sum->b) return std::nullopt;
  if (sum->a != product->out && sum->b != product->out) return std::nullopt;
  if (!dead_after(sum->a, first + 1) || !dead_after(sum->b, first + 1)) return std::nullopt;
  const auto* norm = at<op::RmsNorm>(first + 2);
  const bool whole_rows = norm != nullptr && norm->x == sum->out && norm->groups == 1;
  return ResidualProduct{product, sum, whole_rows ? norm : nullptr};
}

std::optional<std::size_t> GraphPatterns::rope_of(std::size_t product) const {
  const ValueId x = std::get<op::Linear>(graph_.ops[product]).out;
  const std::int32_t last = lives_[to_size(x)].last;
  if (last < 0) return std::nullopt;
  const auto* rope = at<op::Rope>(to_size(last));
  if (rope == nullptr) return std::nullopt;
  for (std::size_t i = product + 1; i < to_size(last); ++i) {
    const std::vector<ValueId> read = inputs(graph_.ops[i]);
    if (std::ranges::find(read, x) != read.end()) return std::nullopt;
  }
  return to_size(last);
}

}  // namespace dllm
