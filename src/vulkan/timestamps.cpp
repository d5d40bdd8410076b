#include "vulkan/timestamps.h"

#include <utility>

namespace dllm::vulkan {

void Timestamps::swap(Timestamps& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  std::swap(count_, other.count_);
}

Timestamps::~Timestamps() {
  if (handle_ != VK_NULL_HANDLE) device_->calls().DestroyQueryPool(device_->handle(), handle_, nullptr);
}

Expected<Timestamps> Timestamps::make(std::shared_ptr<Device> device, std::uint32_t count) {
  if (device->facts().tick_ns == 0)
    return Error{ErrorCode::kUnsupported, device->facts().name + " notes no times", "--backend vulkan", ""};
  Timestamps made;
  made.device_ = std::move(device);
  made.count_ = count;
  auto info = structure<VkQueryPoolCreateInfo>(VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO);
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = count;
  const VkResult result = made.device_->calls().CreateQueryPool(made.device_->handle(), &info, nullptr, &made.handle_);
  if (result != VK_SUCCESS) return call_failed(result, "timestamps");
  return made;
}

Expected<std::vector<double>> Timestamps::read(std::uint32_t count) const {
  std::vector<std::uint64_t> ticks(count);
  const VkResult result =
      device_->calls().GetQueryPoolResults(device_->handle(), handle_, 0, count, ticks.size() * sizeof ticks[0],
                                           ticks.data(), sizeof ticks[0], VK_QUERY_RESULT_64_BIT);
  if (result != VK_SUCCESS) return call_failed(result, "timestamps");
  std::vector<double> times;
  for (const std::uint64_t tick : ticks)
    times.push_back(static_cast<double>(tick - ticks.front()) * device_->facts().tick_ns);
  return times;
}

}  // namespace dllm::vulkan
