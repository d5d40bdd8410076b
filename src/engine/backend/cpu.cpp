// The CPU backend.
#include "engine/backend/cpu.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/host.h"
#include "base/output_file.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "cpu/cpu_backend.h"
#include "dllm/version.h"
#include "engine/backend/cpu_drafter.h"
#include "engine/backend/numerics.h"
#include "engine/load.h"
#include "engine/load_options.h"
#include "engine/second_path_runner.h"

namespace dllm {

CpuKvType kv_type_of(std::string_view name) {
  if (name == "f32") return CpuKvType::kF32;
  if (name == "f16") return CpuKvType::kF16;
  if (name == "bf16") return CpuKvType::kBF16;
  if (name == "q4_0") return CpuKvType::kQ4_0;
  return name == "q8_0" ? CpuKvType::kQ8_0 : CpuKvType::kAuto;
}

Expected<void> check_unreplaced(const Model& model, const std::string& path) {
  DLLM_CHECK_OK(model.check());
  std::error_code ignored;
  const auto now = file_identity(path);
  if (model.files().size() != 1 || !now || std::filesystem::is_directory(path, ignored) ||
      *now == model.files().front()->identity())
    return {};
  return Error{ErrorCode::kIo, "the model was replaced while it was read", path, ""};
}

Expected<void> check_cpu_arithmetic(const LoadOptions& options) {
  if (options.arithmetic != "f16") return {};
  return Error{ErrorCode::kUnsupported, "f16 needs the matrix units of a GPU", "--arithmetic",
               "add --backend vulkan, or leave it out"};
}

CpuOptions cpu_options(const LoadOptions& options) {
  CpuOptions cpu;
  cpu.threads = options.threads > 0 ? options.threads : default_thread_count();
  cpu.isa = options.isa;
  cpu.kv = kv_type_of(options.cache_type);
  if (options.activations == "int8") cpu.activations = CpuActivations::kInt8;
  if (options.activations == "f32") cpu.activations = CpuActivations::kF32;
  if (options.arithmetic == "super") cpu.arithmetic = CpuArithmetic::kSuper;
  if (options.arithmetic == "residual") cpu.arithmetic = CpuArithmetic::kResidual;
  if (options.arithmetic == "auto") cpu.arithmetic = CpuArithmetic::kAuto;
  if (options.attention_arithmetic == "bf16") cpu.attention = CpuAttention::kBF16;
  if (options.attention_arithmetic == "auto") cpu.attention = CpuAttention::kAuto;
  return cpu;
}

namespace {

LatencyKey latency_key(const std::string& path, const LoadOptions& options, const CpuBackend& backend) {
  const SourceIdentity identity = source_identity(path);
  return {.model = path.empty() ? "embedded" : path,
          .model_size = identity.size,
          .model_stamp = identity.stamp,
          .cpu = cpu_name(),
          .isa = std::string(backend.isa()),
          .kv_type = std::string(backend.kv_type()),
          .activations = options.activations.empty() ? "int8" : options.activations,
          .arithmetic = backend.arithmetic(),
          .threads = backend.threads(),
          .version = DLLM_VERSION};
}

Expected<RunningBackend> make_cpu(const Model& model, const std::string& path, const LoadOptions& options,
                                  const Log& log) {
  return run_on_cpu(model, path, options, log);
}

/// Lets --draft-model compute the drafts. A weight cache of its own only if caches are named after their models.
Expected<void> add_drafts(const Model& model, const LoadOptions& options, CpuOptions cpu, const Log& log,
                          RunningBackend& running) {
  DLLM_TRY(const std::shared_ptr<const Model> drafts, open_copy(model, options, log));
  cpu.weight_cache = {};
  if (options.weight_cache == "auto") {
    DLLM_TRY(cpu.weight_cache, weight_cache_options(options.draft_model, options, log));
    cpu.weight_cache.check_source = [drafts, path = options.draft_model] { return check_unreplaced(*drafts, path); };
  }
  return add_copy(drafts, std::move(cpu), running);
}

Expected<std::vector<DeviceInfo>> list_processor() {
  const int cpus = default_thread_count();
  return std::vector<DeviceInfo>{
      {.meaning = fmt::format("{}, {} CPU{}", cpu_name(), cpus, cpus == 1 ? "" : "s"), .standard = true}};
}

}  // namespace

Expected<RunningBackend> run_on_cpu(const Model& model, const std::string& path, const LoadOptions& options,
                                    const Log& log, cpu::Profile* profile) {
  if (!options.numerics.empty()) return run_in_numerics(model, path, options);
  DLLM_CHECK_OK(check_load(options, cpu_reader()));
  DLLM_CHECK_OK(check_cpu_arithmetic(options));
  CpuOptions cpu = cpu_options(options);
  DLLM_TRY(cpu.weight_cache, weight_cache_options(path, options, log));
  cpu.progress = options.progress;
  cpu.profile = profile;
  cpu.weight_cache.check_source = [&model, &path] { return check_unreplaced(model, path); };
  DLLM_TRY(const std::shared_ptr<const Model> drafter, open_drafter(model, options, log));
  const std::vector<std::int32_t> hidden = layers_read_by(drafter);
  DLLM_TRY(std::unique_ptr<CpuBackend> backend,
           CpuBackend::create(
               model.desc(), [&model, hidden](StepShape shape) { return model.build(shape, hidden); }, model.weights(),
               cpu));
  RunningBackend running;
  running.isa = backend->isa();
  running.arithmetic = backend->arithmetic();
  running.threads = backend->threads();
  running.latency = latency_key(path, options, *backend);
  running.second_path = [cpu_backend = backend.get()](int threads) -> Expected<std::unique_ptr<PassRunner>> {
    DLLM_TRY(std::unique_ptr<CpuBackend> other, cpu_backend->beside(threads));
    DLLM_TRY(std::unique_ptr<PassRunner> runner, ThreadedPassRunner::create(std::move(other), &CpuBackend::copy_rows));
    return runner;
  };
  if (backend->weight_cache()) running.files.push_back(backend->weight_cache());
  running.backend = std::move(backend);
  if (drafter) {
    DLLM_CHECK_OK(add_drafter(model, drafter, std::move(cpu), running));
  } else if (!options.draft_model.empty())
    DLLM_CHECK_OK(add_drafts(model, options, std::move(cpu), log, running));
  return running;
}

const LoadReader& cpu_reader() {
  static const LoadReader reader{"cpu",
                                 {"threads", "isa", "cache_type", "activations", "arithmetic", "attention_arithmetic",
                                  "weight_cache", "lora", "lora_draft", "draft_model", "mmproj"},
                                 "this processor does not read it",
                                 "leave it out"};
  return reader;
}

/// Here, because a build without simulated NPUs refuses the same options.
const LoadReader& numerics_reader() {
  static const LoadReader reader{"cpu",
                                 {"threads", "numerics", "lora", "lora_draft"},
                                 "the numerics profile says how the model is computed",
                                 "leave it out, or leave --numerics out"};
  return reader;
}

BackendEntry cpu_backend() {
  BackendEntry entry{"cpu", "this processor", make_cpu};
  entry.readers = {cpu_reader(), numerics_reader()};
  entry.devices.list = list_processor;
  entry.peaks = [](const LoadOptions& options) -> Expected<PeakMeter> {
    return PeakMeter([threads = cpu_options(options).threads] { return cpu::measure_peaks(threads); });
  };
  return entry;
}

}  // namespace dllm
