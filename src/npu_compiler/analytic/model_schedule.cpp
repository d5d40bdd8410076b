#include "npu_compiler/analytic/model_schedule.h"

#include <algorithm>
#include <map>

#include "base/try.h"
#include "npu_compiler/analytic/vector_kernels.h"
#include "npu_compiler/lowering/segments.h"

namespace dllm::npu {
namespace {

constexpr StepShape kMarkedRows = {1009, 17};  ///< distinct counts, to see which values have which
constexpr std::int64_t kShortLayers = 3;       ///< from this layer on, each takes the same time

Graph marked_graph(const ModelShape& shape, std::int64_t layers) {
  ModelDesc desc = shape.desc;
  if (layers > 0) desc.layers = std::min(desc.layers, layers);
  return shape.architecture->build(desc, kMarkedRows);
}

/// Layers of two kinds are all priced.
std::int64_t short_layers(const ModelShape& shape) {
  if (has_two_kinds_of_layers(shape.desc)) return shape.desc.layers;
  return std::min(shape.desc.layers, shape.desc.experts.leading_dense + kShortLayers);
}

/// Everything about an operator that its cost depends on, for graphs of marked rows.
std::vector<std::int64_t> kind_of(const Graph& graph, const Op& any) {
  std::vector<std::int64_t> kind = {static_cast<std::int64_t>(any.index()), beyond_plain(any).empty() ? 0 : 1};
  for (const std::vector<ValueId>& ids : {inputs(any), outputs(any)})
    for (const ValueId id : ids) {
      const Value& value = graph.value(id);
      kind.insert(kind.end(), {value.rows, value.width});
    }
  const auto shape = [&](WeightId id) {
    const Shape& sizes = graph.weight(id).shape;
    kind.insert(kind.end(), sizes.begin(), sizes.end());
  };
  if (const auto* o = std::get_if<op::Embed>(&any)) kind.push_back(static_cast<std::int64_t>(o->part));
  if (const auto* o = std::get_if<op::Scale>(&any)) kind.push_back(scale_products(*o));
  if (const auto* o = std::get_if<op::RmsNorm>(&any)) kind.push_back(o->groups);
  if (const auto* o = std::get_if<op::Glu>(&any)) kind.push_back(static_cast<std::int64_t>(o->activation));
  if (const auto* o = std::get_if<op::Attention>(&any))
    kind.insert(kind.end(), {o->heads, o->kv_heads, o->head_dim, o->window});
  if (const auto* o = std::get_if<op::Route>(&any))
    kind.insert(kind.end(), {o->used, static_cast<std::int64_t>(o->score), o->groups, o->groups_used});
  if (const auto* o = std::get_if<op::Experts>(&any)) shape(o->gate), shape(o->down);
  if (const auto* o = std::get_if<op::ScoreHead>(&any)) shape(o->weight);
  return kind;
}

/// Scored rows of some that take turns; the last ones of a sequence are.
std::int64_t scored_of(const StepSize& step, const RowPart& part) {
  return std::clamp<std::int64_t>(part.first + part.rows - (step.rows - step.scored), 0, part.rows);
}

}  // namespace

bool has_two_kinds_of_layers(const ModelDesc& desc) {
  for (std::int64_t layer = 1; layer < desc.layers; ++layer)
    if (desc.sliding.has(layer) != desc.sliding.has(0)) return true;
  return false;
}

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

ModelSchedule::ModelSchedule(const ModelShape& shape)
    : fewer_(std::make_unique<Short>(shape, std::max<std::int64_t>(1, short_layers(shape) - 1))),
      more_(std::make_unique<Short>(shape, short_layers(shape))),
      left_out_(static_cast<double>(shape.desc.layers - short_layers(shape))) {}

Expected<double> ModelSchedule::cycles(const Device& device, const StepSize& step, const ScheduleAssumptions& like,
                                       std::span<const RowPart> parts) {
  if (parts.empty()) return part_cycles(device, step, like);
  double sum = 0, last_rows = 0;
  std::map<std::int64_t, double> of_sequences;  // halves of an odd number differ by one, and alternate
  const RowPart* turn = nullptr;                // whose time is `last_rows`
  StepSize part = step;
  for (const RowPart& rows : parts) {
    if (rows.rows > 0) {
      if (turn == nullptr || turn->rows != rows.rows || scored_of(step, *turn) != scored_of(step, rows)) {
        DLLM_TRY(last_rows, row_cycles(device, step, rows, like));
      }
      turn = &rows;
      sum += last_rows;
      continue;
    }
    const auto [found, added] = of_sequences.try_emplace(rows.sequences, 0);
    if (added) {
      part.sequences = rows.sequences;
      DLLM_TRY(found->second, part_cycles(device, part, like));
    }
    sum += found->second;
  }
  return sum;
}

Expected<double> ModelSchedule::row_cycles(const Device& device, const StepSize& step, const RowPart& part,
                                           ScheduleAssumptions load) {
  const std::int64_t scored = scored_of(step, part);
  load.sequences = 1;
  load.keys = step.keys;
  load.all_rows = step.rows;
  load.phases = false;
  double cycles[2] = {0, 0};
  for (Short* any : {fewer_.get(), more_.get()}) {
    const Graph& graph = any->graph.with({.rows = part.rows, .scored = std::min(scored, step.scored)});
    for (const Segment& segment : segments(graph)) {
      load.segment = segment;
      DLLM_TRY(const StepSchedule schedule, schedule_step(device, graph, load, any->lowering));
      cycles[any == more_.get()] += schedule.total;
    }
  }
  return cycles[1] + left_out_ * (cycles[1] - cycles[0]);
}

Expected<double> ModelSchedule::part_cycles(const Device& device, const StepSize& step, ScheduleAssumptions load) {
  load.sequences = step.sequences;
  load.keys = step.keys;
  load.phases = false;
  DLLM_TRY(const StepSchedule more, schedule_step(device, more_->graph.with(step.shape()), load, more_->lowering));
  if (left_out_ == 0) return more.total;
  DLLM_TRY(const StepSchedule fewer, schedule_step(device, fewer_->graph.with(step.shape()), load, fewer_->lowering));
  return more.total + left_out_ * (more.total - fewer.total);
}

}  // namespace dllm::npu
