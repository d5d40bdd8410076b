#include "npu_compiler/analytic/refine_schedule.h"

#include <algorithm>
#include <map>

#include "npu_compiler/analytic/schedule.h"
#include "npu_core/device/device.h"

namespace dllm::npu {
namespace {

constexpr StepShape kMarkedRows = {1009, 17};  ///< distinct counts, to see which values have which
constexpr std::int64_t kShortLayers = 3;       ///< from this layer on, each takes the same time

Graph marked_graph(const ModelShape& shape, std::int64_t layers) {
  ModelDesc desc = shape.desc;
  if (layers > 0) desc.layers = std::min(desc.layers, layers);
  return shape.architecture->build(desc, kMarkedRows);
}

std::int64_t short_layers(const ModelShape& shape) {
  return std::min(shape.desc.layers, shape.desc.experts.leading_dense + kShortLayers);
}

/// Everything about an operator that its cost depends on, for graphs of marked rows.
std::vector<std::int64_t> kind_of(const Graph& graph, const Op& any) {
  std::vector<std::int64_t> kind = {static_cast<std::int64_t>(any.index()), beyond_plain(any).empty() ? 0 : 1};
  for (const std::vector<ValueId>& ids : {inputs(any), outputs(any)})
    for (const ValueId id : ids) {
      const Value& value = graph.values[static_cast<std::size_t>(id)];
      kind.insert(kind.end(), {value.rows, value.width});
    }
  const auto shape = [&](WeightId id) {
    const Shape& sizes = graph.weights[static_cast<std::size_t>(id)].shape;
    kind.insert(kind.end(), sizes.begin(), sizes.end());
  };
  if (const auto* o = std::get_if<op::RmsNorm>(&any)) kind.push_back(o->groups);
  if (const auto* o = std::get_if<op::Attention>(&any)) kind.insert(kind.end(), {o->heads, o->kv_heads, o->head_dim});
  if (const auto* o = std::get_if<op::Route>(&any))
    kind.insert(kind.end(), {o->used, static_cast<std::int64_t>(o->score), o->groups, o->groups_used});
  if (const auto* o = std::get_if<op::Experts>(&any)) shape(o->gate), shape(o->down);
  if (const auto* o = std::get_if<op::ScoreHead>(&any)) shape(o->weight);
  return kind;
}

}  // namespace

GraphTemplate::GraphTemplate(const ModelShape& shape, std::int64_t layers) : graph_(marked_graph(shape, layers)) {
  for (std::size_t i = 0; i < graph_.values.size(); ++i)
    (graph_.values[i].rows == kMarkedRows.rows ? of_all_ : of_scored_).push_back(i);
  std::map<std::vector<std::int64_t>, std::int32_t> kinds;
  for (const Op& any : graph_.ops)
    alike_.push_back(kinds.try_emplace(kind_of(graph_, any), static_cast<std::int32_t>(kinds.size())).first->second);
}

const Graph& GraphTemplate::with(StepShape shape) {
  graph_.shape = shape;
  for (const std::size_t i : of_all_) graph_.values[i].rows = shape.rows;
  for (const std::size_t i : of_scored_) graph_.values[i].rows = shape.scored;
  return graph_;
}

RefineSchedule::RefineSchedule(const ModelShape& shape)
    : fewer_(shape, std::max<std::int64_t>(1, short_layers(shape) - 1)),
      more_(shape, short_layers(shape)),
      left_out_(static_cast<double>(shape.desc.layers - short_layers(shape))) {}

std::optional<double> RefineSchedule::cycles(const Device& device, const Workload& workload, double gbps,
                                             std::span<const std::int64_t> parts) {
  if (parts.size() < 2) return part_cycles(device, workload, gbps);
  double sum = 0, last = 0;
  Workload part = workload;
  part.batch = 0;
  for (const std::int64_t sequences : parts) {
    if (sequences != part.batch) {
      part.batch = sequences;
      const std::optional<double> found = part_cycles(device, part, gbps);
      if (!found) return std::nullopt;
      last = *found;
    }
    sum += last;
  }
  return sum;
}

std::optional<double> RefineSchedule::part_cycles(const Device& device, const Workload& workload, double gbps) {
  const HostKeys& host = device.host;
  if (host.dispatch_us > 0 || host.batch_us > 0 || host.dequantize_gbps > 0 || device.window.bytes > 0)
    return std::nullopt;
  const ScheduleLoad load{.sequences = workload.batch,
                          .keys = workload.context,
                          .logits = !workload.fused_head,
                          .logit_bytes = device.numerics.logit_bytes,
                          .gbps = gbps,
                          .queue = device.issue.queue,
                          .choices = workload.choices,
                          .phases = false};
  const auto more = schedule_step(device, more_.with(refine_shape(workload)), load);
  if (!more) return std::nullopt;
  if (left_out_ == 0) return more->total;
  const auto fewer = schedule_step(device, fewer_.with(refine_shape(workload)), load);
  if (!fewer) return std::nullopt;
  return more->total + left_out_ * (more->total - fewer->total);
}

}  // namespace dllm::npu
