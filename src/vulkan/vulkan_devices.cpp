// What there is to run on, without a model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/try.h"
#include "vulkan/device.h"
#include "vulkan/peaks.h"
#include "vulkan/vulkan_backend.h"

namespace dllm {

Expected<std::vector<VulkanDevice>> vulkan_devices() {
  DLLM_TRY(const std::vector<vulkan::DeviceFacts> all, vulkan::list_devices());
  const auto standard = vulkan::choose_device(all, "");
  std::vector<VulkanDevice> devices;
  for (const vulkan::DeviceFacts& facts : all)
    devices.push_back({facts.name, vulkan::kind_of(facts.type), facts.memory_bytes,
                       fmt::format("{}", fmt::join(facts.lacks, ", ")), standard && &all[*standard] == &facts});
  if (devices.empty()) return standard.error();
  return devices;
}

Expected<void> check_vulkan_device(const std::string& device) {
  DLLM_TRY(const std::vector<vulkan::DeviceFacts> all, vulkan::list_devices());
  if (const auto found = vulkan::choose_device(all, device); !found) return found.error();
  return {};
}

Expected<std::function<Expected<cpu::Peaks>()>> vulkan_peaks(const std::string& device) {
  DLLM_TRY(const std::shared_ptr<vulkan::Device> opened, vulkan::Device::open({.device = device}));
  if (opened->facts().tick_ns == 0)
    return Error{ErrorCode::kUnsupported, opened->facts().name + " has no timestamps", "--peak", "leave it out"};
  return std::function<Expected<cpu::Peaks>()>([opened]() -> Expected<cpu::Peaks> {
    DLLM_TRY(const vulkan::DevicePeaks peaks, vulkan::measure_peaks(opened));
    return peaks.summary();
  });
}

}  // namespace dllm
