#include "npu_compiler/compiler/split_step.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/to_size.h"
#include "base/try.h"

namespace dllm::npu {
namespace {

class Cutter {
 public:
  Cutter(const std::function<Graph(StepShape)>& graph, const ModelLayout& layout, const CompileOptions& options)
      : graph_(graph), layout_(layout), options_(options) {}

  Expected<void> add(const StepSpec& spec) {
    const Expected<void> whole = add_whole(spec);
    if (whole || whole.error().code != ErrorCode::kUsage || options_.head != HeadMode::kLogits) return whole;
    if (spec.sequences.size() > 1) {
      const auto middle = spec.sequences.begin() + static_cast<std::ptrdiff_t>(spec.sequences.size() / 2);
      DLLM_CHECK_OK(add({{spec.sequences.begin(), middle}}));
      return add({{middle, spec.sequences.end()}});
    }
    for (const std::vector<RowPart>& cut :
         row_cuts(graph_({spec.rows(), spec.scored()}), layout_.machine, spec.sequences.front().positions)) {
      const Expected<void> added = add_rows(spec, cut);
      if (added || added.error().code != ErrorCode::kUsage) return added;
    }
    return whole;
  }

  Expected<void> add_whole(const StepSpec& spec) {
    Graph graph = graph_({spec.rows(), spec.scored()});
    DLLM_TRY(StepProgram step, compile_unlinked(graph, layout_, spec, options_));
    const Segment all{0, graph.ops.size()};
    append(result_, {spec, std::move(graph), all, std::move(step)});
    result_.row_parts.emplace_back(static_cast<std::int64_t>(spec.sequences.size()));
    options_.first_row += spec.rows();
    return {};
  }

  /// One sequence: its rows in turn, segment by segment. Adds nothing if a part does not fit.
  Expected<void> add_rows(const StepSpec& spec, std::span<const RowPart> cut) {
    const CompileOptions before = options_;
    struct Turn {
      StepSpec spec;
      Graph graph;
      std::int64_t first_row = 0;
      std::uint64_t spill = 0;
    };
    std::vector<Turn> turns;
    for (const RowPart& part : cut) {
      StepSpec some = some_rows(spec, part.first, part.rows);
      Graph graph = graph_({some.rows(), some.scored()});
      std::uint64_t bytes = 0;
      for (const Segment& segment : segments(graph))
        bytes = std::max(bytes, segment.first == 0 ? 0 : spill_bytes(graph, layout_, segment.first));
      turns.push_back(
          {std::move(some), std::move(graph), before.first_row + part.first, layout_.step_base + options_.step_offset});
      options_.step_offset += (bytes + kHbmAlign - 1) / kHbmAlign * kHbmAlign;
    }
    SplitStep added;
    for (const Segment& segment : segments(turns.front().graph))
      for (const Turn& turn : turns) {
        options_.segment = segment;
        options_.spill = turn.spill;
        options_.first_row = turn.first_row;
        Expected<StepProgram> step = compile_unlinked(turn.graph, layout_, turn.spec, options_);
        if (!step) {
          options_ = before;
          return step.error();
        }
        append(added, {turn.spec, turn.graph, segment, *std::move(step)});
      }
    for (StepPart& part : added.parts)
      for (OperatorRegion& region : part.step.operators) {
        region.begin += static_cast<std::uint32_t>(result_.program.size());
        region.end += static_cast<std::uint32_t>(result_.program.size());
      }
    append_code(result_.program, std::move(added.program));
    std::ranges::move(added.parts, std::back_inserter(result_.parts));
    std::ranges::move(added.constants, std::back_inserter(result_.constants));
    result_.row_parts.insert(result_.row_parts.end(), cut.begin(), cut.end());
    options_.segment = {};
    options_.first_row = before.first_row + spec.rows();
    return {};
  }

  Expected<SplitStep> take() {
    result_.program.name = "step";
    result_.program.half_scalars = layout_.machine.lanes == LaneFormat::kF16;
    DLLM_CHECK_OK(link(result_.program));
    return std::move(result_);
  }

 private:
  /// Loops and branches are relative to their own code.
  static void append_code(Program& to, Program own) {
    const auto shift = static_cast<std::uint32_t>(to.size());
    if (to.code.empty())
      to.code = std::move(own.code);
    else
      to.code.insert(to.code.end(), own.code.begin(), own.code.end());
    for (const Region& region : own.regions)
      to.regions.push_back({region.name, region.begin + shift, region.end + shift});
    for (ChoiceSite& site : own.choices.sites) site.instruction += shift;
    to.choices.assumption = own.choices.assumption;
    to.choices.sites.insert(to.choices.sites.end(), own.choices.sites.begin(), own.choices.sites.end());
  }

  void append(SplitStep& to, StepPart part) {
    const auto shift = static_cast<std::uint32_t>(to.program.size());
    append_code(to.program, std::exchange(part.step.program, {}));
    for (OperatorRegion& region : part.step.operators) region.begin += shift, region.end += shift;
    std::ranges::move(part.step.constants, std::back_inserter(to.constants));
    part.step.constants.clear();
    options_.step_offset += part.step.step_bytes;
    to.parts.push_back(std::move(part));
  }

  const std::function<Graph(StepShape)>& graph_;
  const ModelLayout& layout_;
  CompileOptions options_;
  SplitStep result_;
};

/// Lists in INT_MEM come after the tokens of all parts.
CompileOptions with_tokens(CompileOptions options, const StepSpec& spec) {
  options.token_rows = std::max(options.token_rows, options.first_row + spec.rows());
  return options;
}

}  // namespace

StepSpec some_rows(const StepSpec& spec, std::int64_t first, std::int64_t count) {
  SequenceSpec some = spec.sequences.front();
  some.first_of_all = static_cast<Position>(some.window_start(0));
  const auto begin = some.positions.begin() + static_cast<std::ptrdiff_t>(first);
  some.positions = {begin, begin + static_cast<std::ptrdiff_t>(count)};
  some.scored.clear();
  for (const std::int32_t row : spec.sequences.front().scored)
    if (row >= first && row < first + count) some.scored.push_back(static_cast<std::int32_t>(row - first));
  return {{std::move(some)}};
}

std::vector<std::vector<RowPart>> row_cuts(const Graph& graph, const MachineConfig& machine,
                                           std::span<const Position> positions) {
  std::vector<std::vector<RowPart>> cuts;
  const std::int64_t block = routing_block(graph), unit = std::lcm<std::int64_t>(machine.blen, block);
  const auto rows = static_cast<std::int64_t>(positions.size());
  // Factors of K and V are those of all rows; a block that chooses its experts together is not cut.
  const bool adjacent = rows > 0 && positions.back() - positions.front() + 1 == static_cast<Position>(rows);
  if (machine.smoothing.any() || (block > 1 && (!adjacent || positions.front() % block != 0))) return cuts;
  std::int64_t before = rows;
  for (std::int64_t count = 2; before > unit; count *= 2) {
    const std::int64_t each = round_up(ceil_div(rows, count), unit);
    if (each >= before) continue;
    before = each;
    std::vector<RowPart>& cut = cuts.emplace_back();
    for (std::int64_t first = 0; first < rows; first += each) cut.push_back({1, first, std::min(each, rows - first)});
  }
  return cuts;
}

Expected<SplitStep> compile_split(const std::function<Graph(StepShape)>& graph, const ModelLayout& layout,
                                  const StepSpec& spec, const CompileOptions& options) {
  Cutter cutter(graph, layout, with_tokens(options, spec));
  DLLM_CHECK_OK(cutter.add(spec));
  return cutter.take();
}

Expected<SplitStep> compile_parts(const std::function<Graph(StepShape)>& graph, const ModelLayout& layout,
                                  const StepSpec& spec, std::span<const RowPart> parts, const CompileOptions& options) {
  if (parts.empty()) return compile_split(graph, layout, spec, options);
  const Error wrong{ErrorCode::kUsage, "the parts of a mapping are not those of the step", "npu compiler", ""};
  Cutter cutter(graph, layout, with_tokens(options, spec));
  std::size_t sequence = 0;
  for (std::size_t i = 0; i < parts.size();) {
    const auto count = to_size(parts[i].sequences);
    if (count < 1 || sequence + count > spec.sequences.size()) return wrong;
    const auto begin = spec.sequences.begin() + static_cast<std::ptrdiff_t>(sequence);
    const StepSpec some{{begin, begin + static_cast<std::ptrdiff_t>(count)}};
    sequence += count;
    if (parts[i].rows == 0) {
      DLLM_CHECK_OK(cutter.add_whole(some));
      ++i;
      continue;
    }
    std::size_t end = i;
    std::int64_t rows = 0;
    for (; end < parts.size() && parts[end].first == rows && rows < some.rows(); ++end) rows += parts[end].rows;
    if (rows != some.rows() || count != 1) return wrong;
    DLLM_CHECK_OK(cutter.add_rows(some, parts.subspan(i, end - i)));
    i = end;
  }
  if (sequence != spec.sequences.size()) return wrong;
  return cutter.take();
}

}  // namespace dllm::npu
