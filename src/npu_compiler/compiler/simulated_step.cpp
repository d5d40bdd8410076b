#include "npu_compiler/compiler/simulated_step.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/compiler/device_step.h"
#include "npu_core/timing/memo.h"

namespace dllm::npu {
namespace {

/// The operators that were lowered to a region of the program; null: none.
const std::vector<std::int32_t>* operators_of(const SplitStep& step, const Region& region) {
  for (const StepPart& part : step.parts)
    for (const OperatorRegion& lowered : part.step.operators)
      if (lowered.begin <= region.begin && region.begin < lowered.end && !lowered.ops.empty()) return &lowered.ops;
  return nullptr;
}

}  // namespace

double SimulatedStep::total() const { return std::accumulate(cycles.begin(), cycles.end(), other); }

Expected<SimulatedStep> simulate_step(const Device& device, const std::function<Graph(StepShape)>& graph,
                                      const StepSize& step, const std::vector<double>& modelled,
                                      const std::string& directory) {
  DLLM_TRY(const CompiledGraph compiled, compile_graph(graph, device, step, {}));
  TimingOptions options;
  apply_issue(device.issue, options);
  options.repeat = true;
  DLLM_TRY(const MemoisedTiming timing,
           memoised_timing(device, compiled.machine, compiled.step.program, options, directory));
  SimulatedStep result;
  result.cycles.assign(modelled.size(), 0);
  // A report lists the regions that ran, in the program's order, and the code outside of them first.
  auto region = compiled.step.program.regions.begin();
  const auto end = compiled.step.program.regions.end();
  for (const auto& reported : timing.report["regions"]) {
    const auto cycles = reported["cycles"].get<double>();
    const auto name = reported["name"].get<std::string>();
    const auto found = std::find_if(region, end, [&](const Region& r) { return r.name == name; });
    if (found != end) region = found + 1;
    const auto* const ops = found == end ? nullptr : operators_of(compiled.step, *found);
    if (ops == nullptr) {
      result.other += cycles;
      continue;
    }
    const auto weight = [&](std::int32_t op) { return modelled[to_size(op)]; };
    double sum = 0;
    for (const std::int32_t op : *ops) sum += weight(op);
    for (const std::int32_t op : *ops)
      result.cycles[to_size(op)] += cycles * (sum > 0 ? weight(op) / sum : 1.0 / static_cast<double>(ops->size()));
  }
  return result;
}

}  // namespace dllm::npu
