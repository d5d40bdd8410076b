#include "npu_compiler/analytic/products.h"

#include <algorithm>

#include "base/integers.h"
#include "npu_compiler/analytic/routing.h"

namespace dllm::npu {
namespace {

Products matrix(std::int64_t rows, std::int64_t outputs, std::int64_t inputs) {
  return {.macs = rows * outputs * inputs, .weights = static_cast<double>(outputs * inputs)};
}

}  // namespace

ExpertProducts expert_products(const Graph& graph, const op::Experts& o) {
  const Shape& stack = graph.weight(o.gate).shape;
  return {.rows = graph.value(o.x).rows,
          .used = graph.value(o.route).width / 2,
          .count = stack[2],
          .width = stack[0],
          .inner = stack[1],
          .out = graph.value(o.out).width};
}

Products products_of(const Graph& graph, const Op& op, const StepReads& reads) {
  const auto value = [&graph](ValueId id) -> const Value& { return graph.value(id); };
  if (const auto* o = std::get_if<op::Linear>(&op))
    return matrix(value(o->x).rows, value(o->out).width, value(o->x).width);
  if (const auto* o = std::get_if<op::ScoreHead>(&op))
    return matrix(value(o->x).rows, graph.weight(o->weight).shape.back(), value(o->x).width);
  if (const auto* o = std::get_if<op::Attention>(&op)) {
    const std::int64_t keys = seen_keys(*o, ceil_div(value(o->q).rows, reads.sequences), reads.keys);
    return {.macs = 2 * value(o->q).rows * o->heads * keys * o->head_dim,
            .cached = static_cast<double>(2 * reads.sequences * keys * o->kv_heads * o->head_dim)};
  }
  if (const auto* o = std::get_if<op::Experts>(&op)) {
    const ExpertProducts e = expert_products(graph, *o);
    const std::int64_t parts = std::max<std::int64_t>(1, reads.parts);
    const double touched = experts_touched(ceil_div(e.rows, parts), e.count, e.used, reads.choices);
    return {.macs = e.rows * e.used * e.each(),
            .weights = touched * static_cast<double>(parts) * static_cast<double>(e.each())};
  }
  return {};
}

}  // namespace dllm::npu
