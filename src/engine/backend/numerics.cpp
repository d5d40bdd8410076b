// The accuracy simulator: runs a model in the number formats of a profile (--numerics), on this processor.
#include "engine/backend/numerics.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/host.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "dllm/version.h"
#include "engine/load.h"
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

Expected<RunningBackend> run_in_numerics(const Model& model, const std::string& path, const LoadOptions& options) {
  struct Unread {
    bool given;
    const char* flag;
  };
  for (const Unread& one :
       {Unread{!options.isa.empty(), "--isa"}, Unread{!options.cache_type.empty(), "--cache-type"},
        Unread{!options.activations.empty(), "--activations"}, Unread{!options.arithmetic.empty(), "--arithmetic"},
        Unread{!options.attention_arithmetic.empty(), "--attention-arithmetic"},
        Unread{!options.weight_cache.empty(), "--weight-cache"}, Unread{!options.draft_model.empty(), "--draft-model"}})
    if (one.given)
      return Error{ErrorCode::kUsage, "the numerics profile says how the model is computed", one.flag,
                   "leave it out, or leave --numerics out"};
  if (model.adapts_drafts())
    return Error{ErrorCode::kUnsupported, "the simulated NPU does not tell drafts from other passes",
                 "an adapter for drafts alone", "give --lora, or convert the checkpoint without linear_spec_lora"};
  if (options.threads < 0 || options.threads > 1024)
    return Error{ErrorCode::kUsage, fmt::format("{} is not a valid number of threads", options.threads), "--threads",
                 ""};
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
