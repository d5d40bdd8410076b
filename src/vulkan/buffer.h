#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "dllm/error.h"
#include "vulkan/device.h"

namespace dllm::vulkan {

/// Memory of a device, reached by its address. Move-only; keeps the device open.
class Buffer {
 public:
  Buffer() = default;
  /// `what` is named in errors: "the weights". Errors: kResource, with the sizes.
  static Expected<Buffer> make(std::shared_ptr<Device> device, std::int64_t bytes, Place place, std::string_view what);
  ~Buffer();
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }

  std::int64_t bytes() const { return bytes_; }
  VkDeviceAddress address() const { return address_; }
  VkBuffer handle() const { return handle_; }
  /// The memory as this processor sees it; nullptr if it cannot.
  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void swap(Buffer& other) noexcept;

  std::shared_ptr<Device> device_;
  VkBuffer handle_ = VK_NULL_HANDLE;
  VkDeviceMemory memory_ = VK_NULL_HANDLE;
  VkDeviceAddress address_ = 0;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Copies bytes into a buffer of any place, in pieces through shared memory where it is not mapped. Errors: kResource.
Expected<void> upload(const std::shared_ptr<Device>& device, const Buffer& to, std::span<const std::byte> bytes);

}  // namespace dllm::vulkan
