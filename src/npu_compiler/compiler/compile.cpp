#include <fmt/format.h>

#include "base/try.h"
#include "npu_compiler/compiler/context.h"

namespace dllm::npu {
namespace {

std::string region_name(const Graph& graph, const dllm::Op& any) {
  if (const std::vector<ValueId> out = outputs(any); !out.empty()) return graph.value(out.front()).name;
  if (const auto* store = std::get_if<op::StoreKv>(&any)) return fmt::format("blk.{}.store_kv", store->layer);
  return std::string(op_name(any));
}

Expected<void> check(const Graph& graph, const ModelLayout& layout, const StepSpec& spec,
                     const CompileOptions& options) {
  const auto wrong = [](std::string what) { return Error{ErrorCode::kUsage, std::move(what), "npu compiler", ""}; };
  if (std::string fault = validate(graph); !fault.empty()) return wrong("the graph is unsound: " + fault);
  if (graph.shape.rows != spec.rows() || graph.shape.scored != spec.scored() || spec.rows() == 0)
    return wrong(fmt::format("a graph of {} rows, {} of them scored, for a step of {} and {}", graph.shape.rows,
                             graph.shape.scored, spec.rows(), spec.scored()));
  const std::int64_t tokens = std::max(options.token_rows, options.first_row + spec.rows());
  if (static_cast<std::uint64_t>(tokens) + kScratchWords > layout.machine.int_words)
    return wrong(fmt::format("{} rows have more tokens than INT_MEM has words", tokens));
  for (const SequenceSpec& s : spec.sequences)
    for (const Position p : s.positions)
      if (p < 0 || p >= layout.positions || p >= s.capacity)
        return wrong(fmt::format("position {} in a cache of {} and tables of {}", p, s.capacity, layout.positions));
  return {};
}

std::size_t end_of(const StepContext& c) {
  return c.options.segment.end == 0 ? c.graph.ops.size() : c.options.segment.end;
}

void list_matrices(StepContext& c) {
  for (std::size_t i = c.options.segment.first; i < end_of(c); ++i) {
    WeightId weight = kNoId;
    if (const auto* linear = std::get_if<op::Linear>(&c.graph.ops[i])) weight = linear->weight;
    if (const auto* head = std::get_if<op::ScoreHead>(&c.graph.ops[i])) weight = head->weight;
    if (std::holds_alternative<op::Experts>(c.graph.ops[i]))
      c.matrices.push_back({static_cast<std::int32_t>(i), nullptr});
    if (weight == kNoId || (c.spec.scored() == 0 && std::holds_alternative<op::ScoreHead>(c.graph.ops[i]))) continue;
    c.matrices.push_back({static_cast<std::int32_t>(i), c.layout.find(weight, WeightUse::kMatrix)});
  }
}

/// What is lowered as one from an operator on: at most one of the two.
struct Group {
  std::optional<GatedProducts> gated;
  std::optional<ResidualProduct> residual;

  std::size_t ops() const { return gated ? GatedProducts::kOps : residual ? residual->ops() : 1; }
};

/// Products with a bias are lowered separately: the bias is added before anything else reads them.
Group group_at(const StepContext& c, const GraphPatterns& patterns, std::size_t first) {
  const auto plain = [&c](const op::Linear* o) {
    return o->bias == kNoId || c.layout.find(o->bias, WeightUse::kRow) == nullptr;
  };
  Group group;
  if (c.options.fuse && !c.options.keep_values) group.gated = patterns.gated_at(first);
  if (group.gated && group.gated->unit->activation != Activation::kSilu) group.gated.reset();
  if (group.gated && !(plain(group.gated->gate) && plain(group.gated->up))) group.gated.reset();
  if (c.overlap && !group.gated) group.residual = patterns.residual_at(first);
  if (group.residual && !plain(group.residual->product)) group.residual.reset();
  return group;
}

/// Whether the operator processes any rows: a step without scored rows ends before the last norm.
bool has_rows(const StepContext& c, const dllm::Op& any) {
  const std::vector<ValueId> out = outputs(any);
  if (!out.empty()) return c.value_rows(out.front()) > 0;
  if (const auto* hidden = std::get_if<op::HiddenOut>(&any)) return c.value_rows(hidden->x) > 0;
  return !std::holds_alternative<op::ScoreHead>(any) || c.spec.scored() > 0;
}

Expected<void> lower_at(StepContext& c, std::size_t first, const Group& group) {
  const dllm::Op& any = c.graph.ops[first];
  if (!std::holds_alternative<op::Linear>(any)) c.flush_streams();
  if (!std::holds_alternative<op::Linear>(any) && !std::holds_alternative<op::ScoreHead>(any)) c.flush_carry();
  if (!std::holds_alternative<op::Attention>(any)) DLLM_CHECK_OK(store_values(c));
  if (group.residual) return lower(c, *group.residual);
  if (group.gated) return lower(c, *group.gated);
  if (!has_rows(c, any)) return {};
  return std::visit(
      [&c, &any](const auto& o) -> Expected<void> {
        using O = std::decay_t<decltype(o)>;
        if constexpr (std::is_same_v<O, op::Scale> || std::is_same_v<O, op::Select> ||
                      std::is_same_v<O, op::BlockConv> || std::is_same_v<O, op::Gather>)
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
  c.e.begin_region("load");
  std::uint64_t at = c.options.spill;
  for (const ValueId id : waiting_values(c.graph, first)) {
    if (c.value_rows(id) == 0) continue;
    DLLM_TRY(const ValuePlace place, c.place_output(id));
    at += c.move_rows(Op::H_PREFETCH_V, place, at);
  }
  c.e.end_region();
  return {};
}

void store_waiting(StepContext& c) {
  if (end_of(c) == c.graph.ops.size()) return;
  c.e.begin_region("store");
  std::uint64_t at = c.options.spill;
  for (const ValueId id : waiting_values(c.graph, end_of(c)))
    if (c.value_rows(id) > 0) at += c.move_rows(Op::H_STORE_V, c.place(id), at);
  c.e.end_region();
}

/// Joins prologue and body. Loops are relative to their own code, so code may be moved as a whole.
Program join(Program prologue, Program body) {
  const std::uint32_t shift = static_cast<std::uint32_t>(prologue.code.size());
  prologue.code.insert(prologue.code.end(), body.code.begin(), body.code.end());
  for (Region& region : body.regions)
    prologue.regions.push_back({std::move(region.name), region.begin + shift, region.end + shift});
  return prologue;
}

}  // namespace

bool SequenceSpec::sees(std::size_t row, std::int64_t key) const {
  const auto at = static_cast<Position>(key);
  if (causal_block > 0 && at / causal_block > positions[row] / causal_block) return false;
  for (const PositionRange& range : visible)
    if (range.contains(at)) return true;
  return false;
}

std::int64_t StepSpec::rows() const {
  std::int64_t n = 0;
  for (const SequenceSpec& s : sequences) n += static_cast<std::int64_t>(s.positions.size());
  return n;
}

std::int64_t StepSpec::scored() const {
  std::int64_t n = 0;
  for (const SequenceSpec& s : sequences) n += static_cast<std::int64_t>(s.scored.size());
  return n;
}

namespace {

Expected<StepProgram> compile_with(const Graph& graph, const ModelLayout& layout, const StepSpec& spec,
                                   const CompileOptions& options) {
  StepContext c(graph, layout, spec, options);
  c.overlap = options.overlap && options.fuse && !options.keep_values;
  if (c.overlap) {
    DLLM_TRY(c.row_scratch, c.acquire_forever(2, "rows of intermediate results"));
  }
  list_matrices(c);
  const GraphPatterns patterns(graph);
  c.e.begin_region("weights");
  if (!c.matrices.empty()) prefetch_first_panel(c, 0, 0);
  c.e.end_region();
  DLLM_CHECK_OK(load_waiting(c));
  std::set<std::int32_t> listed;  // hoisted operators that belong to a region
  for (std::size_t i = options.segment.first; i < end_of(c);) {
    const Group group = group_at(c, patterns, i);
    const std::size_t count = group.ops();
    c.current = static_cast<std::int32_t>(i + count - 1);
    if (c.hoisted.contains(static_cast<std::int32_t>(i))) {
      c.release_dead();
      ++i;
      continue;
    }
    // A residual's region has the product's name, because its time is spent there.
    OperatorRegion region{{}, region_name(graph, graph.ops[group.residual ? i : i + count - 1]), c.e.position(), 0};
    for (std::size_t k = i; k < i + count; ++k) region.ops.push_back(static_cast<std::int32_t>(k));
    c.e.begin_region(region.name);
    DLLM_CHECK_OK(lower_at(c, i, group));
    c.e.end_region();
    region.end = c.e.position();
    for (const std::int32_t op : c.hoisted)
      if (op > c.current && !listed.contains(op)) region.ops.push_back(op), listed.insert(op);
    c.result.operators.push_back(std::move(region));
    c.release_dead();
    i += count;
  }
  c.flush_streams();
  c.flush_carry();
  DLLM_CHECK_OK(store_values(c));
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
  DLLM_CHECK_OK(link(result.program));
  return result;
}

}  // namespace

std::uint64_t spill_bytes(const Graph& graph, const ModelLayout& layout, std::size_t at) {
  std::int64_t rows = 0;
  for (const ValueId id : waiting_values(graph, at)) {
    const auto index = static_cast<std::size_t>(id);
    rows += round_up(graph.values[index].rows, layout.machine.blen) * layout.slabs(layout.values[index]);
  }
  return static_cast<std::uint64_t>(rows * layout.machine.vlen * 2);
}

Expected<StepProgram> compile_step(const Graph& graph, const ModelLayout& layout, const StepSpec& spec,
                                   const CompileOptions& options) {
  DLLM_CHECK_OK(check(graph, layout, spec, options));
  Expected<StepProgram> first = compile_with(graph, layout, spec, options);
  if (first || !options.overlap || first.error().code != ErrorCode::kUsage) return first;
  CompileOptions plain = options;
  plain.overlap = false;
  return compile_with(graph, layout, spec, plain);
}

}  // namespace dllm::npu
