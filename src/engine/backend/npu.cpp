// The simulated NPU: answers in a device's number formats, and in its virtual time.
#include <fmt/format.h>

#include <optional>
#include <string>

#include "base/cache_directory.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "decode/loop/second_path_options.h"
#include "engine/backend/cpu_drafter.h"
#include "engine/backend/npu_clock.h"
#include "engine/backends.h"
#include "engine/load_options.h"
#include "engine/load_rows.h"
#include "npu_backend/accuracy/accuracy_backend.h"
#include "npu_backend/functional/npu_backend.h"
#include "npu_backend/timed/timed_backend.h"
#include "npu_compiler/compiler/device_tiles.h"
#include "npu_compiler/compiler/tiled_weights.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_core/device/keys.h"
#include "npu_core/device/profile.h"
#include "npu_core/device/readers.h"
#include "npu_core/machine/device_machine.h"

namespace dllm {
namespace {

Expected<std::vector<npu::Override>> device_overrides(const LoadOptions& options) {
  std::vector<npu::Override> overrides;
  for (const std::string& text : options.device_changes) {
    DLLM_TRY(npu::Override change, npu::parse_override(text));
    overrides.push_back(std::move(change));
  }
  return overrides;
}

constexpr const char* kDefaultDevice = "dart-2048";

std::string device_name(const LoadOptions& options) { return options.device.empty() ? kDefaultDevice : options.device; }

/// A file with matrices in tiles was made for one order of them.
Expected<void> check_order(const Model& model, const npu::Device& device) {
  DLLM_TRY(const auto order, model.metadata().string(npu::kTileOrderKey));
  if (!order) return {};
  DLLM_TRY(const npu::MachineConfig machine, npu::machine_config(device));
  if (*order == npu::tile_order(machine)) return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("the file's matrices are in tiles for another device: {}; {} reads {}", *order, device.name,
                           npu::tile_order(machine)),
               std::string(npu::kTileOrderKey), "convert the model with --layout " + device.name};
}

bool by_machine(const LoadOptions& options) { return load_rows::own_text(options, "npu_values") == "machine"; }
bool by_host(const LoadOptions& options) { return load_rows::own_text(options, "npu_processor") == "host"; }
bool simulated(const LoadOptions& options) { return load_rows::own_text(options, "npu_timing") == "simulated"; }

/// The values of one of a model's graphs, by the executor.
Expected<std::unique_ptr<Backend>> executor_values(const Model& model, const GraphOfStep& graph,
                                                   const npu::Device& device, const LoadOptions& options) {
  DLLM_TRY(std::vector<npu::Override> changes, device_overrides(options));
  DLLM_TRY(npu::accuracy::NumericsProfile profile,
           npu::accuracy::device_numerics(device, device_name(options), std::move(changes)));
  DLLM_TRY(std::unique_ptr<Backend> values,
           npu::accuracy::AccuracyBackend::create(model.desc(), graph, model.weights(), std::move(profile),
                                                  options.threads > 0 ? options.threads : default_thread_count(),
                                                  options.progress));
  return values;
}

Expected<std::unique_ptr<Backend>> values_of(const Model& model, const GraphOfStep& graph, const npu::Device& device,
                                             const LoadOptions& options) {
  if (!by_machine(options)) return executor_values(model, graph, device, options);
  DLLM_TRY(const npu::MachineConfig machine, npu::machine_config(device));
  DLLM_TRY(std::unique_ptr<Backend> values, npu::NpuBackend::create(model.desc(), graph, model.weights(), machine));
  return values;
}

const char* const kArithmeticOfProfile = "the simulated device takes its arithmetic from its profile";
const char* const kSetProfile = "leave it out, or change the profile with --set";

/// The ways to compute the values: by the executor, or by the compiled programs.
std::vector<LoadReader> npu_readers() {
  std::vector<std::string> keys = {"lora",       "lora_draft",    "draft_model", "device",     "device_changes",
                                   "npu_values", "npu_processor", "npu_timing",  "npu_paging", "npu_all_logits"};
  LoadReader machine{"npu", keys, kArithmeticOfProfile, kSetProfile};
  LoadReader executor = machine;
  executor.keys.emplace_back("threads");
  return {executor, machine};
}

const LoadReader& reader_of(const LoadOptions& options) {
  static const std::vector<LoadReader> readers = npu_readers();
  return readers[by_machine(options) ? 1 : 0];
}

/// What answers read of the device; without `values`, which a replay of recorded answers does not compute.
npu::VerbUse device_use(const LoadOptions& options, bool values) {
  const bool host = by_host(options);
  if (!values) {
    npu::VerbUse use = {host ? "bench --backend npu --npu-processor host" : "bench --backend npu"};
    if (simulated(options)) use.add("bench --backend npu --npu-timing simulated");
    return use;
  }
  npu::VerbUse use = {host ? "run --backend npu --npu-processor host" : "run --backend npu"};
  if (by_machine(options)) use.add("run --backend npu --npu-values machine");
  if (simulated(options)) use.add("run --backend npu --npu-timing simulated");
  return use;
}

/// The device that `options` name, with their changes. Errors: those of load_device(); kUsage for changes of keys that
/// `use` does not read.
Expected<npu::Device> requested_device(const LoadOptions& options, const npu::VerbUse& use) {
  DLLM_TRY(const std::vector<npu::Override> overrides, device_overrides(options));
  DLLM_TRY(npu::Device device, npu::load_device(device_name(options), overrides));
  DLLM_CHECK_OK(npu::check_changes(overrides, device, use));
  return device;
}

/// How its steps are timed, for options that check_load() has accepted. Errors: kUsage (steps of the host are not
/// simulated).
Expected<npu::TimerOptions> timer_options(const LoadOptions& options) {
  npu::TimerOptions timing{.planner = !load_rows::own_flag(options, "npu_paging"),
                           .skip_logits = !load_rows::own_flag(options, "npu_all_logits")};
  if (by_host(options)) timing.processor = npu::StepProcessor::kHost;
  timing.simulate = simulated(options);
  if (const std::string base = cache_directory(); timing.simulate && !base.empty()) timing.timing_cache = base + "/npu";
  if (timing.simulate && timing.processor == npu::StepProcessor::kHost)
    return Error{ErrorCode::kUsage, "steps of the host are not simulated", "--npu-timing",
                 "leave it or --npu-processor host out"};
  return timing;
}

/// RunningBackend::second_path on the host next to a device. `timed` is borrowed; `copy_rows`: of the backend that
/// computes its values.
std::function<Expected<std::unique_ptr<PassRunner>>(int)> second_path_on_host(const npu::Device& device,
                                                                              npu::TimedBackend& timed,
                                                                              ThreadedPassRunner::CopyRows copy_rows) {
  const bool smooths = device.numerics.smooth_keys != "none" || device.numerics.smooth_values != "none";
  return [&timed, copy_rows = std::move(copy_rows), smooths, name = device.name,
          cores = device.host.cores](int threads) -> Expected<std::unique_ptr<PassRunner>> {
    if (cores == 0)
      return Error{ErrorCode::kUnsupported, "the profile describes no host processor for the second path",
                   "device " + name, "choose a phone such as mobile-sm8750, or leave --refresh-path out"};
    if (threads != SecondPathOptions().refresh_threads)
      return Error{ErrorCode::kUsage, "the second path runs on all cores of the device's host", "--refresh-threads",
                   "leave it out, or change host.cores and its rates with --set"};
    if (smooths)
      return Error{ErrorCode::kUnsupported, "K and V are smoothed with factors that a copy of some rows does not have",
                   "device " + name, "leave --refresh-path out, or numerics.smooth_keys and smooth_values"};
    return std::unique_ptr<PassRunner>(std::make_unique<TimedPassRunner>(timed, copy_rows));
  };
}

/// `values` on `device`, in its virtual time.
Expected<RunningBackend> timed_values(std::unique_ptr<Backend> values, ThreadedPassRunner::CopyRows copy_rows,
                                      const npu::Device& device, const GraphOfStep& graph,
                                      const npu::TimerOptions& timing) {
  DLLM_TRY(std::unique_ptr<npu::TimedBackend> timed,
           npu::TimedBackend::create(std::move(values), device, graph, timing));
  RunningBackend running;
  running.clock = std::make_unique<NpuClock>(*timed, device.name, timing);
  running.second_path = second_path_on_host(device, *timed, std::move(copy_rows));
  running.backend = std::move(timed);
  return running;
}

/// Of a pass over a drafter's block, in passes of the model over as many rows.
Expected<double> cost_of_block(npu::TimedBackend& block, npu::TimedBackend& model, std::int32_t rows) {
  const npu::StepTotals totals{.sequences = 1, .rows = rows, .scored = rows, .keys = rows};
  DLLM_TRY(const double drafter, block.seconds(totals));
  DLLM_TRY(const double target, model.seconds(totals));
  return drafter / target;
}

/// Puts a drafter beside the model that runs on a device. It runs there too, on the same clock; its values are the
/// executor's, and each model is timed as if its weights had the device's memory to themselves.
Expected<void> add_npu_drafter(const std::shared_ptr<const Model>& drafter, const npu::Device& device,
                               LoadOptions options, const npu::TimerOptions& timing, RunningBackend& running) {
  options.progress = {};  // the model's has been shown
  auto& model = static_cast<npu::TimedBackend&>(*running.backend);
  const auto part = [&](auto build, npu::StepKind kind) -> Expected<std::unique_ptr<npu::TimedBackend>> {
    const GraphOfStep graph = [drafter, build](StepShape shape) { return build(*drafter, shape); };
    DLLM_TRY(std::unique_ptr<Backend> values, executor_values(*drafter, graph, device, options));
    return npu::TimedBackend::create(std::move(values), device, graph, timing, &model, kind);
  };
  DLLM_TRY(std::unique_ptr<npu::TimedBackend> context,
           part([](const Model& m, StepShape shape) { return m.build_context(shape); }, npu::StepKind::kPart));
  DLLM_TRY(std::unique_ptr<npu::TimedBackend> block,
           part([](const Model& m, StepShape shape) { return m.build(shape); }, npu::StepKind::kPass));
  DLLM_TRY(const double cost, cost_of_block(*block, model, drafter->desc().drafter.block));
  static_cast<NpuClock&>(*running.clock).add_drafter(*context, *block);
  running.second_path = nullptr;  // it would be given caches of the two models together
  put_beside(drafter, std::move(context), std::move(block), cost, running);
  return {};
}

Expected<RunningBackend> make_npu(const Model& model, const std::string&, const LoadOptions& options, const Log& log) {
  DLLM_CHECK_OK(check_load(options, reader_of(options)));
  if (model.adapts_drafts())
    return Error{ErrorCode::kUnsupported, "the simulated NPU does not tell drafts from other passes",
                 "an adapter for drafts alone", "give --lora, or convert the checkpoint without linear_spec_lora"};
  DLLM_TRY(const npu::Device device, requested_device(options, device_use(options, true)));
  DLLM_TRY(const npu::TimerOptions timing, timer_options(options));
  DLLM_CHECK_OK(check_order(model, device));
  DLLM_TRY(const std::shared_ptr<const Model> drafter, open_drafter(model, options, log));
  if (!drafter && !options.draft_model.empty())
    return Error{ErrorCode::kUnsupported, "a copy of the model makes no drafts for the simulated NPU", "--draft-model",
                 "give a drafter (DFlash), or leave it out"};
  const std::vector<std::int32_t> hidden = layers_read_by(drafter);
  const GraphOfStep graph = [&model, hidden](StepShape shape) { return model.build(shape, hidden); };
  DLLM_TRY(std::unique_ptr<Backend> values, values_of(model, graph, device, options));
  DLLM_TRY(RunningBackend running,
           timed_values(std::move(values),
                        by_machine(options) ? &npu::NpuBackend::copy_rows : &npu::accuracy::AccuracyBackend::copy_rows,
                        device, graph, timing));
  if (drafter) DLLM_CHECK_OK(add_npu_drafter(drafter, device, options, timing, running));
  return running;
}

Expected<RunningBackend> make_valueless_npu(const ModelDesc& desc, const GraphOfStep& graph,
                                            const LoadOptions& options) {
  DLLM_CHECK_OK(check_load(options, npu_readers().front()));
  if (!options.draft_model.empty())
    return Error{ErrorCode::kUnsupported, "a replay of recorded answers makes no drafts", "--draft-model",
                 "leave it out"};
  DLLM_TRY(const npu::Device device, requested_device(options, device_use(options, false)));
  DLLM_TRY(const npu::TimerOptions timing, timer_options(options));
  return timed_values(std::make_unique<npu::ValuelessBackend>(desc), &npu::ValuelessBackend::copy_rows, device, graph,
                      timing);
}

Expected<std::optional<ModelOutline>> npu_outline(const std::string& name) {
  std::optional<ModelOutline> outline;
  if (!npu::is_model_shape(name) && !name.ends_with(".toml")) return outline;
  DLLM_TRY(const npu::ModelShape shape, npu::load_model_shape(name));
  outline = {shape.desc.name, shape.desc,
             [shape](StepShape step) { return shape.architecture->build(shape.desc, step); }};
  return outline;
}

std::vector<LoadOption> npu_options() {
  using namespace load_rows;
  return {
      with_flags(list("device_changes", &LoadOptions::device_changes, "KEY=VALUE",
                      "change one key of that profile, e.g. numerics.weight=mxint8:32:ocp; may be repeated"),
                 {"--set"}),
      own_named("npu_values", {"executor", "machine"}, "executor",
                "what computes the values of --backend npu, which are the same: machine runs the compiled programs"),
      own_named("npu_processor", {"device", "host"}, "device",
                "whose virtual time counts: the device's, or that of its host alone"),
      own_named("npu_timing", {"analytic", "simulated"}, "analytic",
                "what times the device's operators: a model of costs, or the cycle-accurate simulator (seconds to "
                "minutes for each shape of a step, kept in the cache)"),
      with_flags(own_toggle("npu_paging", "without the device's memory runtime: weights outside its window are paged"),
                 {"--no-somr"}),
      with_flags(
          own_toggle("npu_all_logits", "the device's LM head computes every row, not only those that are scored"),
          {"--all-logits"}),
  };
}

Expected<std::vector<DeviceInfo>> list_profiles() {
  std::vector<DeviceInfo> list;
  for (const std::string& name : npu::device_names()) {
    DLLM_TRY(const npu::Device device, npu::load_device(name));
    list.push_back({.name = name, .meaning = device.summary, .standard = name == kDefaultDevice});
  }
  return list;
}

/// Refuses only names of no profile. A file with a mistake passes here: --set may supply what it lacks, and what
/// remains wrong is an error when the device is loaded.
Expected<void> check_profile(const std::string& name) {
  const auto device = npu::load_device(name);
  if (device || device.error().code != ErrorCode::kUsage) return {};
  return device.error();
}

Expected<std::string> tiled_type(const std::string& name) {
  DLLM_TRY(const npu::Device device, npu::load_device(name));
  return npu::tile_recipe(device);
}

Expected<DeviceTiles::Report> write_tiles(const std::string& path, const std::string& name) {
  DLLM_TRY(const npu::Device device, npu::load_device(name));
  DLLM_TRY(const npu::TileReport report, npu::write_device_tiles(path, device));
  return DeviceTiles::Report{report.tiled, report.kept};
}

}  // namespace

BackendEntry npu_backend() {
  BackendEntry entry{"npu", "a simulated NPU, in its number formats and its virtual time", make_npu};
  entry.readers = npu_readers();
  entry.options = npu_options();
  entry.devices = {"a profile of an NPU, by name or file", list_profiles, check_profile};
  entry.virtual_time = true;
  entry.tiles = DeviceTiles{"a phone's NPU (mobile-sm8750)", tiled_type, write_tiles};
  entry.make_valueless = make_valueless_npu;
  entry.outline = npu_outline;
  return entry;
}

}  // namespace dllm
