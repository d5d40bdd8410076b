// The simulated NPU: steps compiled to its programs and run on the functional machine, in its number formats.
#include "npu/backend/npu_backend.h"

#include "base/try.h"
#include "engine/backends.h"
#include "npu/device/device.h"
#include "npu/machine/device_machine.h"

namespace dllm {
namespace {

Expected<RunningBackend> make_npu(const Model& model, const std::string&, const LoadOptions& options, const Log&) {
  struct Unread {
    bool given;
    const char* flag;
  };
  for (const Unread& one :
       {Unread{options.threads != 0, "--threads"}, Unread{!options.isa.empty(), "--isa"},
        Unread{!options.cache_type.empty(), "--cache-type"}, Unread{!options.activations.empty(), "--activations"},
        Unread{!options.arithmetic.empty(), "--arithmetic"}, Unread{!options.weight_cache.empty(), "--weight-cache"},
        Unread{!options.draft_model.empty(), "--draft-model"}, Unread{!options.numerics.empty(), "--numerics"}})
    if (one.given)
      return Error{ErrorCode::kUsage,
                   "the simulated device takes its arithmetic from its profile, and runs on one thread", one.flag,
                   "leave it out, or change the profile with --set"};
  if (model.adapts_drafts())
    return Error{ErrorCode::kUnsupported, "the simulated NPU does not tell drafts from other passes",
                 "an adapter for drafts alone", "give --lora, or convert the checkpoint without linear_spec_lora"};
  std::vector<npu::Override> overrides;
  for (const std::string& text : options.device_changes) {
    DLLM_TRY(npu::Override change, npu::parse_override(text));
    overrides.push_back(std::move(change));
  }
  DLLM_TRY(const npu::Device device,
           npu::load_device(options.device.empty() ? "dart-2048" : options.device, overrides));
  DLLM_TRY(const npu::MachineConfig machine, npu::machine_config(device));
  RunningBackend running;
  DLLM_TRY(running.backend,
           npu::NpuBackend::create(
               model.desc(), [&model](StepShape shape) { return model.build(shape); }, model.weights(), machine));
  return running;
}

}  // namespace

BackendEntry npu_backend() { return {"npu", "the simulated NPU with its number formats (bit-exact, slow)", make_npu}; }

}  // namespace dllm
