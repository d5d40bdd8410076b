#include "vulkan/buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/human_bytes.h"
#include "base/try.h"
#include "vulkan/commands.h"

namespace dllm::vulkan {
namespace {

/// Bytes of a piece that is staged: long enough that its start costs nothing.
constexpr std::int64_t kPiece = std::int64_t{16} << 20;

std::string size_of(std::int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

}  // namespace

void Buffer::swap(Buffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  std::swap(memory_, other.memory_);
  std::swap(address_, other.address_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
}

Buffer::~Buffer() {
  if (!device_) return;
  const DeviceCalls& calls = device_->calls();
  if (handle_ != VK_NULL_HANDLE) calls.DestroyBuffer(device_->handle(), handle_, nullptr);
  if (memory_ != VK_NULL_HANDLE) {
    calls.FreeMemory(device_->handle(), memory_, nullptr);
    device_->count_allocation(-bytes_);
  }
}

Expected<Buffer> Buffer::make(std::shared_ptr<Device> device, std::int64_t bytes, Place place, std::string_view what) {
  const DeviceFacts& facts = device->facts();
  if (bytes > facts.most_allocation)
    return Error{ErrorCode::kResource,
                 fmt::format("{} takes {}, and {} allows {} at a time", what, size_of(bytes), facts.name,
                             size_of(facts.most_allocation)),
                 "", "use a smaller model or a shorter context"};
  const DeviceCalls& calls = device->calls();
  Buffer buffer;
  buffer.device_ = device;
  auto info = structure<VkBufferCreateInfo>(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
  info.size = static_cast<VkDeviceSize>(std::max<std::int64_t>(bytes, 16));
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
               VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  const auto failed = [&](VkResult result) {
    Error error = call_failed(result, fmt::format("{} ({})", what, size_of(bytes)));
    if (facts.memory_bytes > 0)
      error.what += fmt::format("; it has {}, of which {} are in use", size_of(facts.memory_bytes),
                                size_of(device->bytes_in_use()));
    return error;
  };
  if (const VkResult made = calls.CreateBuffer(device->handle(), &info, nullptr, &buffer.handle_); made != VK_SUCCESS)
    return failed(made);
  VkMemoryRequirements needs;
  calls.GetBufferMemoryRequirements(device->handle(), buffer.handle_, &needs);
  auto flags = structure<VkMemoryAllocateFlagsInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO);
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  auto allocate = structure<VkMemoryAllocateInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO);
  allocate.pNext = &flags;
  allocate.allocationSize = needs.size;
  allocate.memoryTypeIndex = device->memory_type(place);
  VkResult made = calls.AllocateMemory(device->handle(), &allocate, nullptr, &buffer.memory_);
  if (made != VK_SUCCESS) return failed(made);
  buffer.bytes_ = bytes;
  device->count_allocation(bytes);
  made = calls.BindBufferMemory(device->handle(), buffer.handle_, buffer.memory_, 0);
  void* mapped = nullptr;
  if (made == VK_SUCCESS && device->maps(place))
    made = calls.MapMemory(device->handle(), buffer.memory_, 0, VK_WHOLE_SIZE, 0, &mapped);
  if (made != VK_SUCCESS) return failed(made);
  buffer.data_ = static_cast<std::byte*>(mapped);
  auto address = structure<VkBufferDeviceAddressInfo>(VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO);
  address.buffer = buffer.handle_;
  buffer.address_ = calls.GetBufferDeviceAddress(device->handle(), &address);
  return buffer;
}

Expected<void> upload(const std::shared_ptr<Device>& device, const Buffer& to, std::span<const std::byte> bytes) {
  if (to.data() != nullptr) {
    std::memcpy(to.data(), bytes.data(), bytes.size());
    return {};
  }
  const auto size = static_cast<std::int64_t>(bytes.size());
  DLLM_TRY(const Buffer stage, Buffer::make(device, std::min(size, kPiece), Place::kShared, "a piece of the weights"));
  for (std::int64_t at = 0; at < size; at += kPiece) {
    const std::int64_t count = std::min(kPiece, size - at);
    std::memcpy(stage.data(), bytes.data() + at, static_cast<std::size_t>(count));
    DLLM_TRY(Commands commands, Commands::begin(device));
    commands.copy(stage, 0, to, at, count);
    DLLM_CHECK_OK(commands.end());
    DLLM_CHECK_OK(commands.run("the copy of weights"));
  }
  return {};
}

}  // namespace dllm::vulkan
