#include "npu_compiler/sweep/simulated_front.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/try.h"
#include "npu_compiler/analytic/model_schedule.h"
#include "npu_compiler/compiler/device_step.h"
#include "npu_compiler/compiler/mapper.h"
#include "npu_core/timing/memo.h"

namespace dllm::npu {
namespace {

class FrontSimulation {
 public:
  FrontSimulation(SweepSpace& space, const std::string& directory)
      : space_(space),
        directory_(directory),
        device_(space.base()),
        schedule_(space.shape()),
        feasibility_(space.shape()) {}

  /// Errors: why a point is none.
  Expected<SimulatedPoint> run(const std::vector<std::uint32_t>& indices) {
    DLLM_CHECK_OK(space_.resolve(indices, device_, workload_));
    DLLM_TRY(const BlockParts* by_rule, space_.feasible(device_, workload_, feasibility_));
    DLLM_TRY(const BlockParts mapped, search_block(device_, space_.shape(), workload_, directory_));
    DLLM_TRY(const double warm,
             step("the warm step", warm_step(workload_), by_rule->warm, mapped.warm, *mapped.mapping));
    DLLM_TRY(const double refine,
             step("a refinement step", refine_step(workload_), by_rule->refine, mapped.refine, *mapped.mapping));
    const double ms = 1e-6 / device_.clock.ghz;
    return SimulatedPoint{.warm_ms = warm * ms, .refine_ms = refine * ms};
  }

 private:
  /// Cycles of the mapped program.
  Expected<double> step(const char* name, const StepSize& size, const std::vector<RowPart>& by_rule,
                        const std::vector<RowPart>& parts, const Mapping& mapping) {
    DLLM_TRY(const double priced, price(size, by_rule));
    const auto build = [this](StepShape rows) { return space_.shape().architecture->build(space_.shape().desc, rows); };
    CompileOptions compile;
    compile.choices = workload_.choices;
    DLLM_TRY(const CompiledGraph compiled, compile_graph(build, device_, size, compile, {}, &mapping, parts));
    TimingOptions timing;
    timing.repeat = true;
    DLLM_TRY(const MemoisedTiming made,
             memoised_timing(device_, compiled.machine, compiled.step.program, timing, directory_));
    const auto cycles = static_cast<double>(made.total);
    if (cycles <= (1 + kFrontTolerance) * priced) return cycles;
    return Error{ErrorCode::kUsage,
                 fmt::format("{} takes {:.0f} cycles in simulation, {:.0f} as priced", name, cycles, priced), "sweep",
                 ""};
  }

  /// As the point's figures have it: by rule, logits to memory as the program writes them.
  Expected<double> price(const StepSize& size, const std::vector<RowPart>& parts) {
    DLLM_TRY(const double gbps, space_.bandwidth(device_));
    return schedule_.cycles(device_, size,
                            {.logits = true,
                             .logit_bytes = device_.numerics.logit_bytes,
                             .gbps = gbps,
                             .queue = device_.issue.queue,
                             .choices = workload_.choices},
                            parts);
  }

  SweepSpace& space_;
  const std::string directory_;
  Device device_;
  Workload workload_;
  ModelSchedule schedule_;
  Feasibility feasibility_;
};

}  // namespace

Expected<void> simulate_front(const SweepSpec& spec, SweepReport& report, const std::string& directory,
                              const SweepProgress& progress) {
  DLLM_TRY(const std::unique_ptr<SweepSpace> space, SweepSpace::create(spec));
  FrontSimulation simulation(*space, directory);
  if (report.errors.empty()) report.errors.emplace_back();
  const auto known = [&](const SweepRow& row) {
    return std::ranges::any_of(report.simulated, [&](const SimulatedPoint& p) { return p.point == row.point; });
  };
  for (bool left = true; left;) {
    left = false;
    std::vector<std::size_t> todo;
    for (std::size_t i = 0; i < report.rows.size(); ++i)
      if (report.rows[i].pareto && !known(report.rows[i])) todo.push_back(i);
    for (std::size_t i = 0; i < todo.size(); ++i) {
      SweepRow& row = report.rows[todo[i]];
      if (progress && !progress(static_cast<std::int64_t>(i), static_cast<std::int64_t>(todo.size())))
        return Error{ErrorCode::kCancelled, fmt::format("stopped after {} of {} points of the front", i, todo.size()),
                     "", "the same command continues from there"};
      auto found = simulation.run(spec.indices(row.point));
      if (found) {
        found->point = row.point;
        report.simulated.push_back(*found);
        continue;
      }
      // Only what is said of the point makes it none; a full disk or a lost memory would cost the front its points.
      if (found.error().code != ErrorCode::kUsage && found.error().code != ErrorCode::kUnsupported)
        return std::move(found).error();
      left = true;
      row.error = static_cast<std::uint32_t>(report.errors.size());
      report.errors.push_back(found.error().message());
      ++report.invalid;
    }
    if (!left) break;
    for (SweepRow& row : report.rows) row.pareto = false;
    finish_sweep(spec, report);
  }
  std::ranges::sort(report.simulated, {}, &SimulatedPoint::point);
  return {};
}

}  // namespace dllm::npu
