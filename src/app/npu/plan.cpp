// dllm npu plan: where the tensors of a step are placed in a device's address window, and what is staged when.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "app/npu/flags.h"
#include "base/input_file.h"
#include "base/try.h"
#include "npu_compiler/compiler/feasible.h"
#include "npu_compiler/compiler/step_time.h"
#include "npu_compiler/runtime/memory_map.h"
#include "npu_compiler/runtime/program_file.h"
#include "npu_compiler/runtime/step_memory.h"
#include "npu_core/device/profile.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

class NpuPlan final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Step of a model");
    model_.add(flags);
    add_number(flags, "--batch", "sequences", batch_, 1 << 16);
    add_number(flags, "--rows", "positions of each sequence that the step runs", rows_, 1 << 20);
    add_number(flags, "--context", "positions that each row sees", context_, 1 << 24);
    routing_.add(flags);
    flags.read_only_without("Step of a model", {"--program"});
    flags.group("Other programs");
    flags.add({.names = {"--program"},
               .value = "FILE.toml",
               .help = "tensors and operators of another graph (npu-runtime.md)",
               .takes_path = true,
               .apply = into(program_)});
    flags.group("Device");
    device_.name = "mobile-v79";
    device_.add(flags);
    flags.group("Output");
    flags.add({.names = {"--svg"},
               .value = "FILE",
               .help = "draw the map: addresses over the time of a step",
               .takes_path = true,
               .written = true,
               .apply = into(svg_)});
    add_output_flag(flags, output_, {"text", "json"});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    DLLM_TRY(const npu::Device device, device_.load({program_.empty() ? "npu plan" : "npu plan --program"}));
    DLLM_TRY(const npu::MemoryLimits limits, npu::memory_limits(device));
    std::string title = program_;
    npu::MemoryProgram program;
    if (program_.empty()) {
      DLLM_TRY(program, step(device, title));
    } else {
      DLLM_TRY(const std::string text, read_input(program_));
      DLLM_TRY(program, npu::parse_memory_program(text, program_));
    }
    DLLM_TRY(const npu::MemoryPlan plan, npu::plan_memory(program, limits));
    title += " on " + device.name;
    if (!svg_.empty()) DLLM_CHECK_OK(write_result(session, svg_, npu::memory_map_svg(program, plan, title)));
    if (output_ == "json") {
      Json json = provenance(session.command);
      json["device"] = npu::device_json(device);
      json["plan"] = npu::memory_map_json(program, plan);
      session.terminal.out << dump(json) << "\n";
    } else {
      session.terminal.out << title << "\n" << npu::memory_map_text(program, plan);
    }
    return kExitOk;
  }

 private:
  Expected<npu::MemoryProgram> step(const npu::Device& device, std::string& title) const {
    DLLM_TRY(const npu::ModelShape shape, model_.load());
    DLLM_CHECK_OK(npu::check_modelled(device));
    DLLM_TRY(const double gbps, npu::achieved_bandwidth(device));
    DLLM_TRY(const npu::CostModel model, npu::CostModel::create(device, gbps));
    const StepSize work{.sequences = batch_, .rows = rows_, .keys = context_, .scored = rows_};
    if (rows_ > context_)
      return Error{ErrorCode::kUsage, fmt::format("{} rows in a context of {}", rows_, context_), "--rows",
                   "the context counts all positions, those of the step included"};
    DLLM_TRY(const std::vector<npu::RowPart> parts, npu::check_feasible(device, shape, work, routing_.choices));
    const npu::StepQuestion question{.step = work, .choices = routing_.choices, .logits = false, .parts = parts};
    const npu::CostAssumptions load{.sequences = batch_,
                                    .keys = context_,
                                    .choices = routing_.choices,
                                    .parts = static_cast<std::int64_t>(parts.size())};
    DLLM_TRY(const npu::StepCost cost, model.evaluate(shape.architecture->build(shape.desc, work.shape()), load));
    npu::StepTimes times(shape);
    DLLM_TRY(const npu::StepCycles timed, times.time(model, question, cost));
    title = fmt::format("{}, {} x {} rows, context {}", shape.desc.name, batch_, rows_, context_);
    return times.program(model, question, timed);
  }

  NpuModelFlags model_;
  DeviceFlags device_;
  RoutingFlags routing_;
  std::int64_t batch_ = 1, rows_ = 32, context_ = 512;
  std::string program_, svg_, output_;
};

}  // namespace

std::unique_ptr<Verb> make_npu_plan() { return std::make_unique<NpuPlan>(); }

}  // namespace dllm::app
