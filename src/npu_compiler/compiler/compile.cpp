#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/to_size.h"
#include "base/try.h"
#include "graph/patterns.h"
#include "npu_compiler/compiler/context.h"
#include "npu_compiler/compiler/step_count.h"
#include "npu_compiler/lowering/lanes.h"
#include "npu_compiler/lowering/phases.h"

namespace dllm::npu {
namespace {

Error wrong(std::string what) { return {ErrorCode::kUsage, std::move(what), "npu compiler", ""}; }

Expected<void> check_sizes(const ModelLayout& layout, const StepSpec& spec, const CompileOptions& options) {
  const std::int64_t tokens = std::max(options.token_rows, options.first_row + spec.rows());
  if (static_cast<std::uint64_t>(tokens) + kScratchWords > layout.machine.int_words)
    return wrong(fmt::format("{} rows have more tokens than INT_MEM has words", tokens));
  for (const SequenceSpec& s : spec.sequences) {
    if (s.positions.empty()) continue;
    for (const Position p : {s.positions.front(), s.positions.back()})  // ascending
      if (p < 0 || p >= layout.positions || p >= s.capacity)
        return wrong(fmt::format("position {} in a cache of {} and tables of {}", p, s.capacity, layout.positions));
  }
  return {};
}

Expected<void> check(const Graph& graph, const ModelLayout& layout, const StepSpec& spec,
                     const CompileOptions& options) {
  if (std::string fault = validate(graph); !fault.empty()) return wrong("the graph is unsound: " + fault);
  if (spec.alike != 1) return wrong("only counted steps have sequences that stand for others");
  if (graph.shape.rows != spec.rows() || graph.shape.scored != spec.scored() || spec.rows() == 0)
    return wrong(fmt::format("a graph of {} rows, {} of them scored, for a step of {} and {}", graph.shape.rows,
                             graph.shape.scored, spec.rows(), spec.scored()));
  return check_sizes(layout, spec, options);
}

std::size_t end_of(const StepContext& c) {
  return c.options.segment.end == 0 ? c.graph.ops.size() : c.options.segment.end;
}

PhaseRules phase_rules(const StepContext& c) {
  PhaseRules rules{.segment = c.options.segment,
                   .hlen = c.machine.hlen,
                   .fuse = c.options.fuse && !c.options.keep_values,
                   .overlap = c.overlap,
                   .smooth = c.machine.smoothing.any(),
                   .absent = std::vector<bool>(c.graph.weights.size(), true)};
  for (const WeightPlace& place : c.layout.weights)
    if (place.use == WeightUse::kRow) rules.absent[to_size(place.weight)] = false;
  return rules;
}

void list_matrices(StepContext& c, const std::vector<Phase>& phases) {
  for (const StreamedMatrix& m : streamed_matrices(c.graph, phases)) {
    c.matrices.push_back(m.weight == kNoId ? nullptr : c.layout.find(m.weight, WeightUse::kMatrix));
    if (m.second != kNoId) c.matrices.push_back(c.layout.find(m.second, WeightUse::kMatrix));
  }
}

/// Whether the operator processes any rows: a step without scored rows ends before the last norm.
bool has_rows(const StepContext& c, const dllm::Op& any) {
  const std::vector<ValueId> out = outputs(any);
  if (!out.empty()) return c.value_rows(out.front()) > 0;
  if (const auto* hidden = std::get_if<op::HiddenOut>(&any)) return c.value_rows(hidden->x) > 0;
  return !std::holds_alternative<op::ScoreHead>(any) || c.spec.scored() > 0;
}

Expected<void> lower_phase(StepContext& c, const Phase& phase) {
  const dllm::Op& any = c.graph.ops[phase.first];
  if (!std::holds_alternative<op::Linear>(any)) c.flush_streams();
  if (!std::holds_alternative<op::Linear>(any) && !std::holds_alternative<op::ScoreHead>(any)) c.flush_carry();
  if (!std::holds_alternative<op::Attention>(any)) DLLM_CHECK_OK(store_values(c));
  if (phase.residual) return lower(c, *phase.residual);
  if (phase.gated) return lower(c, *phase.gated);
  if (!has_rows(c, any)) return {};
  return std::visit(
      [&c, &any](const auto& o) -> Expected<void> {
        using O = std::decay_t<decltype(o)>;
        if constexpr (std::is_same_v<O, op::BlockConv> || std::is_same_v<O, op::Gather>)
          return Error{ErrorCode::kUnsupported, fmt::format("{} is not compiled", op_name(any)), "npu compiler", ""};
        else
          return lower(c, o);
      },
      any);
}

/// Values that wait in HBM, one after the other as they are in vector SRAM.
Expected<void> load_waiting(StepContext& c) {
  const std::size_t first = c.options.segment.first;
  if (first == 0) return {};
  c.current = static_cast<std::int32_t>(first);
  if (!c.counts) c.e.begin_region("load");
  std::uint64_t at = c.options.spill;
  for (const ValueId id : waiting_values(c.lives(), first)) {
    if (c.value_rows(id) == 0) continue;
    DLLM_TRY(const ValuePlace place, c.place_output(id));
    if (!c.counts) at += c.move_rows(Op::H_PREFETCH_V, place, at);
  }
  if (!c.counts) c.e.end_region();
  return {};
}

void store_waiting(StepContext& c) {
  if (end_of(c) == c.graph.ops.size()) return;
  c.e.begin_region("store");
  std::uint64_t at = c.options.spill;
  for (const ValueId id : waiting_values(c.lives(), end_of(c)))
    if (c.value_rows(id) > 0) at += c.move_rows(Op::H_STORE_V, c.place(id), at);
  c.e.end_region();
}

/// Joins prologue and body. Loops are relative to their own code, so code may be moved as a whole. The body is the
/// larger one by far, and its memory is kept.
Program join(Program prologue, Program body) {
  const std::uint32_t shift = static_cast<std::uint32_t>(prologue.code.size());
  body.code.insert(body.code.begin(), prologue.code.begin(), prologue.code.end());
  prologue.code = std::move(body.code);
  for (Region& region : body.regions)
    prologue.regions.push_back({std::move(region.name), region.begin + shift, region.end + shift});
  return prologue;
}

}  // namespace

bool SequenceSpec::sees(std::size_t row, std::int64_t key, std::int64_t window) const {
  if (window > 0 && key <= window_start(row) - window) return false;
  const auto at = static_cast<Position>(key);
  if (causal_block > 0 && at / causal_block > positions[row] / causal_block) return false;
  for (const PositionRange& range : visible)
    if (range.contains(at)) return true;
  return false;
}

std::int64_t StepSpec::rows() const {
  std::int64_t n = 0;
  for (const SequenceSpec& s : sequences) n += static_cast<std::int64_t>(s.positions.size());
  return n * alike;
}

std::int64_t StepSpec::scored() const {
  std::int64_t n = 0;
  for (const SequenceSpec& s : sequences) n += static_cast<std::int64_t>(s.scored.size());
  return n * alike;
}

namespace {

Expected<void> prepare(StepContext& c) {
  c.overlap = c.options.overlap && c.options.fuse && !c.options.keep_values;
  if (c.overlap) {
    DLLM_TRY(c.row_scratch, c.acquire_forever(2, "rows of intermediate results"));
  }
  return {};
}

/// A phase's region of the program.
Expected<void> emit_phase(StepContext& c, const Phase& phase) {
  OperatorRegion region{{}, phase_name(c.graph, phase), c.e.position(), 0};
  for (std::size_t k = 0; k < phase.count; ++k) region.ops.push_back(static_cast<std::int32_t>(phase.first + k));
  c.e.begin_region(region.name);
  DLLM_CHECK_OK(lower_phase(c, phase));
  if (phase.streamed != Phase::kNone) {
    DLLM_CHECK_OK(stream_rope(c, phase));
    region.ops.push_back(static_cast<std::int32_t>(phase.streamed));
  }
  c.e.end_region();
  region.end = c.e.position();
  c.result.operators.push_back(std::move(region));
  return {};
}

Expected<void> count_phase(StepContext& c, const Phase& phase) {
  DLLM_CHECK_OK(lower_phase(c, phase));
  return phase.streamed != Phase::kNone ? stream_rope(c, phase) : Expected<void>{};
}

Expected<void> lower_all(StepContext& c, const std::vector<Phase>& all, StepUse& use) {
  DLLM_CHECK_OK(load_waiting(c));
  std::int64_t peak = -1, kept = 0;  // at the latest attention
  for (const Phase& phase : all) {
    if (std::holds_alternative<op::Attention>(c.graph.ops[phase.first])) {
      use.steady = c.vram().peak() == std::exchange(peak, c.vram().peak());
      use.layer_rows = c.vram().kept() - std::exchange(kept, c.vram().kept());
    }
    c.current = static_cast<std::int32_t>(phase.first + phase.count - 1);
    if (!phase.in_stream) DLLM_CHECK_OK(c.counts ? count_phase(c, phase) : emit_phase(c, phase));
    c.release_dead();
  }
  c.flush_streams();
  c.flush_carry();
  return store_values(c);
}

Expected<StepProgram> compile_with(const Graph& graph, const ModelLayout& layout, const StepSpec& spec,
                                   const CompileOptions& options) {
  const std::vector<Lifetime> lives = lifetimes(graph);
  StepContext c(graph, layout, spec, options, lives);
  DLLM_CHECK_OK(prepare(c));
  const std::vector<Phase> all = phases(graph, GraphPatterns(graph), phase_rules(c));
  list_matrices(c, all);
  c.e.begin_region("weights");
  if (!c.matrices.empty()) prefetch_first_panel(c, 0, 0);
  c.e.end_region();
  StepUse use;
  DLLM_CHECK_OK(lower_all(c, all, use));
  store_waiting(c);
  c.e.fence(0);
  c.prologue.end_region();
  StepProgram result = std::move(c.result);
  const std::uint32_t shift = c.prologue.position();
  for (OperatorRegion& region : result.operators) region.begin += shift, region.end += shift;
  result.program = join(c.prologue.take(), c.e.take());
  result.program.name = "step";
  for (ChoiceSite& site : c.choices) site.instruction += shift;
  result.program.choices = {options.choices, std::move(c.choices)};
  result.vram_rows = c.vram_used();
  result.overlapped = c.overlap;
  result.step_bytes = c.step_used();
  return result;
}

Expected<StepUse> count_with(const Graph& graph, const ModelLayout& layout, const StepSpec& spec,
                             const CompileOptions& options, KeptLowering& kept) {
  StepContext c(graph, layout, spec, options, kept.lives(), true);
  DLLM_CHECK_OK(prepare(c));
  StepUse use;
  DLLM_CHECK_OK(lower_all(c, kept.phases(phase_rules(c)), use));
  use.vram_rows = c.vram_used(), use.overlapped = c.overlap, use.step_bytes = c.step_used();
  return use;
}

/// With overlap, and without it if that does not fit.
template <class Compile>
auto with_room(const CompileOptions& options, const Compile& compile) {
  auto first = compile(options);
  if (first || !options.overlap || first.error().code != ErrorCode::kUsage) return first;
  CompileOptions plain = options;
  plain.overlap = false;
  return compile(plain);
}

}  // namespace

std::uint64_t spill_bytes(const Graph& graph, const ModelLayout& layout, std::size_t at) {
  return static_cast<std::uint64_t>(waiting_bytes(graph, layout.values, layout.machine.blen, layout.machine.vlen, at));
}

Expected<StepUse> count_step(const Graph& graph, const ModelLayout& layout, const StepSpec& spec,
                             const CompileOptions& options, KeptLowering& kept) {
  DLLM_CHECK_OK(check_sizes(layout, spec, options));
  return with_room(options, [&](const CompileOptions& o) { return count_with(graph, layout, spec, o, kept); });
}

Expected<StepProgram> compile_unlinked(const Graph& graph, const ModelLayout& layout, const StepSpec& spec,
                                       const CompileOptions& options) {
  DLLM_CHECK_OK(check(graph, layout, spec, options));
  return with_room(options, [&](const CompileOptions& o) { return compile_with(graph, layout, spec, o); });
}

Expected<StepProgram> compile_step(const Graph& graph, const ModelLayout& layout, const StepSpec& spec,
                                   const CompileOptions& options) {
  DLLM_TRY(StepProgram step, compile_unlinked(graph, layout, spec, options));
  DLLM_CHECK_OK(link(step.program));
  return step;
}

}  // namespace dllm::npu
