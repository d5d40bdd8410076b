#include "npu_compiler/compiler/split_step.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/try.h"

namespace dllm::npu {
namespace {

class Cutter {
 public:
  Cutter(const std::function<Graph(StepShape)>& graph, const ModelLayout& layout, const CompileOptions& options)
      : graph_(graph), layout_(layout), options_(options) {}

  Expected<void> add(const StepSpec& spec) {
    Graph graph = graph_({spec.rows(), spec.scored()});
    Expected<StepProgram> step = compile_step(graph, layout_, spec, options_);
    if (step) {
      append(spec, std::move(graph), *std::move(step));
      return {};
    }
    const bool divisible = spec.sequences.size() > 1 && options_.head == HeadMode::kLogits;
    if (step.error().code != ErrorCode::kUsage || !divisible) return step.error();
    const auto middle = spec.sequences.begin() + static_cast<std::ptrdiff_t>(spec.sequences.size() / 2);
    DLLM_CHECK_OK(add({{spec.sequences.begin(), middle}}));
    return add({{middle, spec.sequences.end()}});
  }

  Expected<SplitStep> take() {
    result_.program.name = "step";
    result_.program.half_scalars = layout_.machine.lanes == LaneFormat::kF16;
    DLLM_CHECK_OK(link(result_.program));
    return std::move(result_);
  }

 private:
  void append(const StepSpec& spec, Graph graph, StepProgram step) {
    const auto shift = static_cast<std::uint32_t>(result_.program.size());
    Program own = std::exchange(step.program, {});
    // Loops and branches are relative to their own code.
    std::ranges::move(own.code, std::back_inserter(result_.program.code));
    for (const Region& region : own.regions)
      result_.program.regions.push_back({region.name, region.begin + shift, region.end + shift});
    for (ChoiceSite& site : own.choices.sites) site.instruction += shift;
    ProgramChoices& choices = result_.program.choices;
    choices.assumption = own.choices.assumption;
    choices.sites.insert(choices.sites.end(), own.choices.sites.begin(), own.choices.sites.end());
    for (OperatorRegion& region : step.operators) region.begin += shift, region.end += shift;
    std::ranges::move(step.constants, std::back_inserter(result_.constants));
    step.constants.clear();
    options_.first_row += spec.rows();
    options_.step_offset += step.step_bytes;
    result_.parts.push_back({spec, std::move(graph), std::move(step)});
  }

  const std::function<Graph(StepShape)>& graph_;
  const ModelLayout& layout_;
  CompileOptions options_;
  SplitStep result_;
};

}  // namespace

Expected<SplitStep> compile_split(const std::function<Graph(StepShape)>& graph, const ModelLayout& layout,
                                  const StepSpec& spec, const CompileOptions& options) {
  Cutter cutter(graph, layout, options);
  DLLM_CHECK_OK(cutter.add(spec));
  return cutter.take();
}

}  // namespace dllm::npu
