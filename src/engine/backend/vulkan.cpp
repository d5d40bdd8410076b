// A GPU, or this processor by a driver for it, through Vulkan.
#include "engine/backend/vulkan.h"

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/human_bytes.h"
#include "base/try.h"
#include "cpu/model_memory.h"
#include "cpu/packed_weights.h"
#include "engine/backend/cpu.h"
#include "engine/backend/cpu_drafter.h"
#include "engine/backends.h"
#include "engine/cut_backend.h"
#include "engine/load_options.h"
#include "engine/load_rows.h"
#include "graph/cut.h"
#include "vulkan/most_unrolled.h"

namespace dllm {
namespace {

constexpr const char *kLayers = "gpu_layers", *kUnroll = "unroll";

const LoadReader& vulkan_reader() {
  static const LoadReader reader{"vulkan",
                                 {"threads", "cache_type", "arithmetic", "weight_cache", "lora", "lora_draft",
                                  "draft_model", "device", kLayers, kUnroll},
                                 "the Vulkan backend does not read it",
                                 "leave it out"};
  return reader;
}

/// The part of a progress that goes from `from` to `to`.
LoadProgress between(const LoadProgress& progress, double from, double to) {
  if (!progress) return {};
  return [progress, from, to](double done) { return progress(from + done * (to - from)); };
}

std::string layer_range(std::int64_t first, std::int64_t last) {
  return first == last ? fmt::format("layer {}", first) : fmt::format("layers {} to {}", first, last);
}

/// For people: what is where.
std::string split_text(std::int64_t layers, std::int64_t last, std::int64_t here_bytes, const std::string& device,
                       std::int64_t there_bytes) {
  return fmt::format("on this processor: {} of {} ({} of weights); on {}: {} and the head ({})",
                     layer_range(1, layers - last), layers, human_bytes(static_cast<double>(here_bytes)), device,
                     layer_range(layers - last + 1, layers), human_bytes(static_cast<double>(there_bytes)));
}

/// A model whose last layers are on a device. Embeddings are looked up here in any case, and the device reduces the
/// head's logits, so a pass crosses once.
Expected<RunningBackend> run_split(const Model& model, const LoadOptions& options, VulkanOptions vulkan,
                                   std::int64_t last) {
  if (!options.weight_cache.empty())
    return Error{ErrorCode::kUsage, "a weight cache holds a whole model, and --gpu-layers splits this one",
                 "--weight-cache", "leave it out, or put all layers on one side"};
  const Graph whole = model.build({1, 1});
  const Weights& weights = model.weights();
  DLLM_TRY(const GraphCut cut, cut_graph(whole, last));
  const std::int64_t here_bytes = cpu::PackedWeights::bytes_needed(cut.front, weights);
  const std::int64_t there_bytes = cpu::PackedWeights::bytes_needed(cut.back, weights);
  const double there = static_cast<double>(there_bytes) / static_cast<double>(here_bytes + there_bytes + 1);
  CpuOptions cpu = cpu_options(options);
  // The whole model decides, not each part.
  cpu.kv = vulkan.kv = kv_type_of(cpu::storage_name(cpu::storage_type(cpu.kv, whole, weights)));
  vulkan.progress = between(options.progress, 0, there);
  cpu.progress = between(options.progress, there, 1);
  // The device first: it may have no room, which is known before anything is packed.
  DLLM_TRY(std::unique_ptr<VulkanBackend> back,
           make_vulkan_backend(
               model.desc(), [&model, last](StepShape shape) { return cut_graph(model.build(shape), last)->back; },
               weights, std::move(vulkan)));
  DLLM_TRY(std::unique_ptr<CpuBackend> front,
           CpuBackend::create(
               model.desc(), [&model, last](StepShape shape) { return cut_graph(model.build(shape), last)->front; },
               weights, std::move(cpu)));
  const auto layers = static_cast<std::int64_t>(layers_of(whole).size());
  const std::string split = split_text(layers, last, here_bytes, back->device(), there_bytes);
  RunningBackend running = run_on_vulkan(std::move(back));
  running.isa += fmt::format("; {} of {} on {}", layer_range(1, layers - last), layers, front->isa());
  running.device = [device = std::move(running.device), split] {
    DeviceStatus status = device();
    status.split = split;
    return status;
  };
  running.profile = [device = std::move(running.profile), here = front.get()](cpu::Profile* profile) {
    device(profile);
    here->set_profile(profile);
  };
  running.backend = std::make_unique<CutBackend>(std::move(front), std::move(running.backend));
  return running;
}

Expected<RunningBackend> make_vulkan(const Model& model, const std::string& path, const LoadOptions& options,
                                     const Log& log) {
  DLLM_CHECK_OK(check_load(options, vulkan_reader()));
  const bool halves = options.arithmetic == "f16";
  if (!options.arithmetic.empty() && options.arithmetic != "exact" && !halves)
    return Error{ErrorCode::kUnsupported, fmt::format("the Vulkan backend has no arithmetic '{}'", options.arithmetic),
                 "--arithmetic", "leave it out"};
  const std::optional<std::int64_t> layers = load_rows::own_integer(options, kLayers);
  const std::int64_t unroll = load_rows::own_integer(options, kUnroll).value_or(1);
  const bool whole = !layers || *layers >= static_cast<std::int64_t>(layers_of(model.build({1, 1})).size());
  if (unroll > 1 && !whole)
    return Error{ErrorCode::kUsage, "passes in a row need all layers on the GPU", "--unroll",
                 "leave it out, or --gpu-layers"};
  if (halves && !whole)
    return Error{ErrorCode::kUsage, "f16 needs all layers on the GPU", "--arithmetic", "leave it out, or --gpu-layers"};
  if (layers && *layers == 0) {
    LoadOptions here = options;
    here.backend.clear();
    here.device.clear();  // which --device names for other numbers of layers
    here.backend_options.clear();
    return run_on_cpu(model, path, here, log);
  }
  DLLM_TRY(const std::shared_ptr<const Model> drafter, open_drafter(model, options, log));
  if (!drafter && !options.draft_model.empty())
    return Error{ErrorCode::kUnsupported, "a copy of the model makes no drafts for the Vulkan backend", "--draft-model",
                 "give a drafter (DFlash), or leave it out"};
  VulkanOptions vulkan;
  vulkan.device = options.device;
  vulkan.threads = options.threads;
  vulkan.kv = kv_type_of(options.cache_type);
  vulkan.unroll = static_cast<std::int32_t>(unroll);
  if (!whole && drafter)
    return Error{ErrorCode::kUnsupported, "a drafter needs all of its model's layers on one side", "--draft-model",
                 "leave it out, or --gpu-layers"};
  if (halves) vulkan.arithmetic = VulkanArithmetic::kF16;
  if (!whole) return run_split(model, options, std::move(vulkan), *layers);
  const std::vector<std::int32_t> hidden = layers_read_by(drafter);
  vulkan.progress = options.progress;
  DLLM_TRY(vulkan.weight_cache, weight_cache_options(path, options, log));
  vulkan.weight_cache.check_source = [&model, &path] { return check_unreplaced(model, path); };
  DLLM_TRY(std::unique_ptr<VulkanBackend> backend,
           make_vulkan_backend(
               model.desc(), [&model, hidden](StepShape shape) { return model.build(shape, hidden); }, model.weights(),
               vulkan));
  RunningBackend running = run_on_vulkan(std::move(backend));
  if (drafter) DLLM_CHECK_OK(add_drafter(model, drafter, cpu_options(options), running));
  return running;
}

std::vector<LoadOption> vulkan_options() {
  using namespace load_rows;
  LoadOption unroll =
      own_number(kUnroll, vulkan::kMostUnrolled, "1: it looks at every pass",
                 "run up to so many passes in a row before this processor looks at them, where the algorithm is "
                 "threshold or low-confidence; the answer is the same; takes memory for the embeddings of all "
                 "tokens");
  unroll.row.info.minimum = 1;
  return {with_flags(own_number(kLayers, 1 << 20, "all on the GPU, or an error if it has no room",
                                "so many of the model's last layers run on the GPU, with the head, and the others on "
                                "this processor; 0: all layers run on this processor; as many as the model has, or "
                                "more: all run on the GPU"),
                     {"-ngl", "--gpu-layers", "--n-gpu-layers"}),
          std::move(unroll)};
}

Expected<std::vector<DeviceInfo>> list_cards() {
  DLLM_TRY(const std::vector<VulkanDevice> devices, vulkan_devices());
  std::vector<DeviceInfo> list;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const VulkanDevice& one = devices[i];
    std::string meaning =
        fmt::format("{}, {}, {}", one.name, one.kind, human_bytes(static_cast<double>(one.memory_bytes)));
    if (!one.lacks.empty()) meaning += ", lacks " + one.lacks;
    list.push_back({.name = std::to_string(i), .meaning = std::move(meaning), .standard = one.standard});
  }
  return list;
}

Expected<PeakMeter> peaks_of_card(const LoadOptions& options) { return vulkan_peaks(options.device); }

}  // namespace

RunningBackend run_on_vulkan(std::unique_ptr<VulkanBackend> backend) {
  RunningBackend running;
  running.isa = fmt::format("{}, {}", backend->device(), backend->rounding());
  running.arithmetic = backend->arithmetic();
  running.threads = backend->threads();
  running.device = [device = backend.get()] {
    return DeviceStatus{.memory_used = device->device_bytes(),
                        .memory_total = device->memory_bytes(),
                        .passes = device->passes(),
                        .pass_seconds = device->pass_seconds(),
                        .failure = device->failure(),
                        .split = {},
                        .passes_ahead = device->passes_ahead()};
  };
  running.profile = [device = backend.get()](cpu::Profile* profile) { device->time_shaders(profile); };
  if (backend->weight_cache()) running.files.push_back(backend->weight_cache());
  running.backend = std::move(backend);
  return running;
}

BackendEntry vulkan_backend() {
  BackendEntry entry{"vulkan", "a GPU, through Vulkan"};
  entry.missing = vulkan_missing();
  entry.devices.kind = "a GPU, by index or name";
  // Also in a build without it, so that all builds know the same options.
  entry.options = vulkan_options();
  entry.implied_by = kLayers;
  if (!has_vulkan()) return entry;
  entry.make = make_vulkan;
  entry.readers = {vulkan_reader()};
  entry.devices.list = list_cards;
  entry.devices.check = check_vulkan_device;
  entry.peaks = peaks_of_card;
  return entry;
}

}  // namespace dllm
