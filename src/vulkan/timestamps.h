#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dllm/error.h"
#include "vulkan/device.h"

namespace dllm::vulkan {

/// Times that a device notes while it runs commands (Commands::stamp()). Move-only.
class Timestamps {
 public:
  /// Errors: kUnsupported (the device has none), kResource.
  static Expected<Timestamps> make(std::shared_ptr<Device> device, std::uint32_t count);
  ~Timestamps();
  Timestamps(Timestamps&& other) noexcept { swap(other); }
  Timestamps& operator=(Timestamps&& other) noexcept {
    swap(other);
    return *this;
  }

  VkQueryPool handle() const { return handle_; }
  std::uint32_t count() const { return count_; }
  /// The first `count` of the last run, in nanoseconds since the first. Errors: kResource.
  Expected<std::vector<double>> read(std::uint32_t count) const;

 private:
  Timestamps() = default;
  void swap(Timestamps& other) noexcept;

  std::shared_ptr<Device> device_;
  VkQueryPool handle_ = VK_NULL_HANDLE;
  std::uint32_t count_ = 0;
};

}  // namespace dllm::vulkan
