#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "dllm/error.h"
#include "vulkan/device.h"

namespace dllm::vulkan {

/// Memory of a device, reached by its address. Move-only; keeps the device open.
class Buffer {
 public:
  /// Bytes after the end of those of make(), which may be read. Mesa 26.1's driver for processors runs a loop's body
  /// once more than any invocation asks for; numbers that are the same for all of them are loaded in that round, too.
  static constexpr std::int64_t kTail = 256;
  Buffer() = default;
  /// `what` is named in errors: "the weights". Errors: kResource, with the sizes.
  static Expected<Buffer> make(std::shared_ptr<Device> device, std::int64_t bytes, Place place, std::string_view what);
  /// Memory of this processor, which must outlive the buffer, as the device's. Both ends are multiples of
  /// kImportedPage. Errors: kResource (the driver does not take it: copies are the way then).
  static Expected<Buffer> import(std::shared_ptr<Device> device, const void* memory, std::int64_t bytes);
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
  VkResult create(std::int64_t bytes, const void* next);
  VkResult bind(bool map);

  std::shared_ptr<Device> device_;
  VkBuffer handle_ = VK_NULL_HANDLE;
  VkDeviceMemory memory_ = VK_NULL_HANDLE;
  VkDeviceAddress address_ = 0;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  bool imported_ = false;
};

/// Copies bytes into buffers of any place: in pieces through one piece of shared memory where they are not mapped.
class Uploader {
 public:
  explicit Uploader(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  /// To the bytes from `first` on. Errors: kResource.
  Expected<void> copy(const Buffer& to, std::span<const std::byte> bytes, std::int64_t first = 0);

 private:
  std::shared_ptr<Device> device_;
  Buffer stage_;
};

}  // namespace dllm::vulkan
