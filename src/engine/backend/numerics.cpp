// The accuracy simulator: runs a model in the number formats of a profile (--numerics), on this processor.
#include "engine/backend/numerics.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/host.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "dllm/version.h"
#include "engine/load.h"
#include "engine/load_options.h"
#include "npu_backend/accuracy/accuracy_backend.h"

namespace dllm {
namespace {

LatencyKey simulation_key(const std::string& path, const npu::accuracy::NumericsProfile& profile, int threads) {
  const SourceIdentity identity = source_identity(path);
  return {.model = path.empty() ? "embedded" : path,
          .model_size = identity.size,
          .model_stamp = identity.stamp,
          .cpu = cpu_name(),
          .isa = "",
          .kv_type = profile.key.name(),
          .activations = profile.activation.name(),
          .arithmetic = npu::accuracy::numerics_json(profile).dump(),
          .threads = threads,
          .version = DLLM_VERSION};
}

}  // namespace

const LoadReader& numerics_reader() {
  static const LoadReader reader{"cpu",
                                 {"threads", "numerics", "lora", "lora_draft"},
                                 "the numerics profile says how the model is computed",
                                 "leave it out, or leave --numerics out"};
  return reader;
}

Expected<RunningBackend> run_in_numerics(const Model& model, const std::string& path, const LoadOptions& options) {
  DLLM_CHECK_OK(check_load(options, numerics_reader()));
  if (model.adapts_drafts())
    return Error{ErrorCode::kUnsupported, "the simulated NPU does not tell drafts from other passes",
                 "an adapter for drafts alone", "give --lora, or convert the checkpoint without linear_spec_lora"};
  auto profile = npu::accuracy::load_numerics(options.numerics);
  if (!profile) {
    Error error = std::move(profile).error();
    if (error.where.empty()) error.where = "--numerics";
    return error;
  }
  const int threads = options.threads > 0 ? options.threads : default_thread_count();
  RunningBackend running;
  running.arithmetic = "numerics " + profile->name;
  running.threads = threads;
  running.latency = simulation_key(path, *profile, threads);
  DLLM_TRY(running.backend, npu::accuracy::AccuracyBackend::create(
                                model.desc(), [&model](StepShape shape) { return model.build(shape); }, model.weights(),
                                *std::move(profile), threads));
  return running;
}

}  // namespace dllm
