#include "npu_compiler/compiler/counted_model.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/compiler/split_step.h"

namespace dllm::npu {
namespace {

/// Whether an operator's result may be another name of its operand (StepContext::alias()).
bool renames(const dllm::Op& op) {
  return std::holds_alternative<op::Select>(op) || std::holds_alternative<op::GatherScored>(op) ||
         std::holds_alternative<op::Rope>(op);
}

}  // namespace

CountedModel::CountedModel(const ModelShape& shape, std::int64_t layers)
    : graph_(shape, layers), lowering_(graph_.with({1, 1})), segments_(segments(graph())) {
  for (const WeightDecl& decl : graph().weights) present_.push_back(decl.required);
  for (const Segment& segment : segments_)
    if (segment.first > 0) waiting_.push_back(waiting_values(lowering_.lives(), segment.first));
  const Graph& marked = graph_.with({.rows = 2, .scored = 1});
  std::vector<std::vector<ValueId>> names(marked.values.size());
  for (const dllm::Op& op : marked.ops)
    if (renames(op)) names[to_size(outputs(op).front())] = inputs(op);
  // Phases begin at these operators, whatever is fused.
  for (std::size_t i = 1; i < marked.ops.size(); ++i) {
    if (!std::holds_alternative<op::Attention>(marked.ops[i]) && !std::holds_alternative<op::Glu>(marked.ops[i - 1]))
      continue;
    Waiting some;
    const std::vector<ValueId> waiting = waiting_values(lowering_.lives(), i);
    const auto waits = [&](ValueId id) { return std::ranges::find(waiting, id) != waiting.end(); };
    for (const ValueId id : waiting)
      if (std::ranges::none_of(names[to_size(id)], waits))
        (marked.value(id).rows == 2 ? some.all : some.scored).push_back(id);
    together_.push_back(std::move(some));
  }
}

Expected<ModelLayout> CountedModel::layout(const MachineConfig& machine, const Mapping* mapping) {
  return place_model(graph(), present_, machine, 1, mapping);
}

Expected<StepUse> CountedModel::use(const ModelLayout& layout, const StepSpec& spec, const CompileOptions& options) {
  return count_step(graph_.with({spec.rows(), spec.scored()}), layout, spec, options, lowering_);
}

Expected<void> CountedModel::use_rows(const ModelLayout& layout, const StepSpec& spec, std::span<const RowPart> cut,
                                      CompileOptions options) {
  options.token_rows = std::max(options.token_rows, options.first_row + spec.rows());
  struct Turns {
    StepSpec spec;
    std::uint64_t count = 0;
  };
  std::vector<Turns> kinds;
  for (const RowPart& part : cut) {
    StepSpec some = some_rows(spec, part.first, part.rows);
    options.step_offset += spill(layout, some);
    const auto like = [&](const Turns& t) { return t.spec.rows() == some.rows() && t.spec.scored() == some.scored(); };
    if (const auto found = std::ranges::find_if(kinds, like); found != kinds.end())
      ++found->count;
    else
      kinds.push_back({std::move(some), 1});
  }
  for (const Segment& segment : segments_)
    for (const Turns& turns : kinds) {
      options.segment = segment;
      DLLM_TRY(const StepUse used, use(layout, turns.spec, options));
      if (turns.count == 1) {
        options.step_offset += used.step_bytes;
        continue;
      }
      // The last of these has the least memory left.
      options.step_offset += (turns.count - 1) * used.step_bytes;
      DLLM_CHECK_OK(use(layout, turns.spec, options));
      options.step_offset += used.step_bytes;
    }
  return {};
}

std::int64_t CountedModel::least_rows(const ModelLayout& layout, const StepSpec& spec) const {
  const std::int64_t all = round_up(spec.rows(), layout.machine.blen),
                     scored = round_up(spec.scored(), layout.machine.blen);
  std::int64_t most = 0;
  for (const Waiting& some : together_) {
    std::int64_t rows = 0;
    for (const ValueId id : some.all) rows += all * layout.slabs(layout.values[to_size(id)]);
    for (const ValueId id : some.scored) rows += scored * layout.slabs(layout.values[to_size(id)]);
    most = std::max(most, rows);
  }
  return most;
}

bool CountedModel::repeats(CountedModel& one_more, CountedModel& longer, std::int64_t layers) {
  const std::array<std::int64_t, 3> sizes[] = {size(), one_more.size(), longer.size()};
  for (std::size_t i = 0; i < 3; ++i)
    if (sizes[2][i] != sizes[1][i] + layers * (sizes[1][i] - sizes[0][i])) return false;
  return true;
}

std::uint64_t CountedModel::spill(const ModelLayout& layout, const StepSpec& some) {
  const Graph& graph = graph_.with({some.rows(), some.scored()});
  std::int64_t bytes = 0;
  for (const std::vector<ValueId>& waiting : waiting_)
    bytes = std::max(bytes, waiting_bytes(graph, layout.values, layout.machine.blen, layout.machine.vlen, waiting));
  return (static_cast<std::uint64_t>(bytes) + kHbmAlign - 1) / kHbmAlign * kHbmAlign;
}

std::array<std::int64_t, 3> CountedModel::size() {
  std::array<std::int64_t, 3> sum = {static_cast<std::int64_t>(graph().ops.size())};
  for (const Value& value : graph().values) sum[1] += value.width;
  for (const WeightDecl& decl : graph().weights) {
    std::int64_t elements = 1;
    for (const std::int64_t length : decl.shape) elements *= length;
    sum[2] += elements;
  }
  return sum;
}

}  // namespace dllm::npu
