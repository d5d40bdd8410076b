// A GPU, or this processor by a driver for it, through Vulkan.
#include "engine/backend/vulkan.h"

#include <fmt/format.h>

#include <utility>

#include "base/human_bytes.h"
#include "base/try.h"
#include "engine/backend/cpu.h"
#include "engine/backends.h"
#include "engine/load_options.h"

namespace dllm {
namespace {

const LoadReader& vulkan_reader() {
  static const LoadReader reader{
      "vulkan",
      {"threads", "cache_type", "arithmetic", "weight_cache", "lora", "lora_draft", "device"},
      "the Vulkan backend does not read it",
      "leave it out"};
  return reader;
}

Expected<RunningBackend> make_vulkan(const Model& model, const std::string& path, const LoadOptions& options,
                                     const Log& log) {
  DLLM_CHECK_OK(check_load(options, vulkan_reader()));
  if (!options.arithmetic.empty() && options.arithmetic != "exact")
    return Error{ErrorCode::kUnsupported, fmt::format("the Vulkan backend has no arithmetic '{}'", options.arithmetic),
                 "--arithmetic", "leave it out"};
  VulkanOptions vulkan;
  vulkan.device = options.device;
  vulkan.threads = options.threads;
  vulkan.kv = kv_type_of(options.cache_type);
  vulkan.progress = options.progress;
  DLLM_TRY(vulkan.weight_cache, weight_cache_options(path, options, log));
  vulkan.weight_cache.check_source = [&model, &path] { return check_unreplaced(model, path); };
  DLLM_TRY(std::unique_ptr<VulkanBackend> backend,
           make_vulkan_backend(
               model.desc(), [&model](StepShape shape) { return model.build(shape); }, model.weights(), vulkan));
  return run_on_vulkan(std::move(backend));
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

}  // namespace

RunningBackend run_on_vulkan(std::unique_ptr<VulkanBackend> backend) {
  RunningBackend running;
  running.isa = fmt::format("{}, {}", backend->device(), backend->rounding());
  running.arithmetic = backend->arithmetic();
  running.threads = backend->threads();
  running.device = [device = backend.get()] {
    return DeviceStatus{device->device_bytes(), device->memory_bytes(), device->passes(), device->pass_seconds(),
                        device->failure()};
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
  if (!has_vulkan()) return entry;
  entry.make = make_vulkan;
  entry.readers = {vulkan_reader()};
  entry.devices.list = list_cards;
  entry.devices.check = check_vulkan_device;
  return entry;
}

}  // namespace dllm
