#include "vulkan/buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
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
  std::swap(imported_, other.imported_);
}

Buffer::~Buffer() {
  if (!device_) return;
  const DeviceCalls& calls = device_->calls();
  if (handle_ != VK_NULL_HANDLE) calls.DestroyBuffer(device_->handle(), handle_, nullptr);
  if (memory_ != VK_NULL_HANDLE) {
    calls.FreeMemory(device_->handle(), memory_, nullptr);
    if (!imported_) device_->count_allocation(-bytes_);
  }
}

VkResult Buffer::create(std::int64_t bytes, const void* next) {
  auto info = structure<VkBufferCreateInfo>(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
  info.pNext = next;
  info.size = static_cast<VkDeviceSize>(bytes);
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
               VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  return device_->calls().CreateBuffer(device_->handle(), &info, nullptr, &handle_);
}

VkResult Buffer::bind(bool map) {
  const DeviceCalls& calls = device_->calls();
  VkResult made = calls.BindBufferMemory(device_->handle(), handle_, memory_, 0);
  void* mapped = nullptr;
  if (made == VK_SUCCESS && map) made = calls.MapMemory(device_->handle(), memory_, 0, VK_WHOLE_SIZE, 0, &mapped);
  if (made != VK_SUCCESS) return made;
  data_ = static_cast<std::byte*>(mapped);
  auto address = structure<VkBufferDeviceAddressInfo>(VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO);
  address.buffer = handle_;
  address_ = calls.GetBufferDeviceAddress(device_->handle(), &address);
  return VK_SUCCESS;
}

Expected<Buffer> Buffer::make(std::shared_ptr<Device> device, std::int64_t bytes, Place place, std::string_view what) {
  const DeviceFacts& facts = device->facts();
  if (bytes > facts.most_allocation - kTail)
    return Error{ErrorCode::kResource,
                 fmt::format("{} takes {}, and {} allows {} at a time", what, size_of(bytes), facts.name,
                             size_of(facts.most_allocation)),
                 "", "use a smaller model or a shorter context"};
  const DeviceCalls& calls = device->calls();
  Buffer buffer;
  buffer.device_ = device;
  const auto failed = [&](VkResult result) {
    Error error = call_failed(result, fmt::format("{} ({})", what, size_of(bytes)));
    if (facts.memory_bytes > 0)
      error.what += fmt::format("; it has {}, of which {} are in use", size_of(facts.memory_bytes),
                                size_of(device->bytes_in_use()));
    return error;
  };
  if (const VkResult made = buffer.create(bytes + kTail, nullptr); made != VK_SUCCESS) return failed(made);
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
  made = buffer.bind(device->maps(place));
  if (made != VK_SUCCESS) return failed(made);
  return buffer;
}

Expected<Buffer> Buffer::import(std::shared_ptr<Device> device, const void* memory, std::int64_t bytes) {
  DLLM_TRY(std::uint32_t types, device->imported_types(memory));
  const DeviceCalls& calls = device->calls();
  Buffer buffer;
  buffer.device_ = device;
  auto external = structure<VkExternalMemoryBufferCreateInfo>(VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO);
  external.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  constexpr std::string_view kDoing = "the import of memory";
  if (const VkResult made = buffer.create(bytes, &external); made != VK_SUCCESS) return call_failed(made, kDoing);
  VkMemoryRequirements needs;
  calls.GetBufferMemoryRequirements(device->handle(), buffer.handle_, &needs);
  types &= needs.memoryTypeBits;
  if (types == 0 || needs.size > static_cast<VkDeviceSize>(bytes)) return call_failed(VK_ERROR_UNKNOWN, kDoing);
  auto pointer = structure<VkImportMemoryHostPointerInfoEXT>(VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT);
  pointer.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  pointer.pHostPointer = const_cast<void*>(memory);  // the device only reads it
  auto flags = structure<VkMemoryAllocateFlagsInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO);
  flags.pNext = &pointer;
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  auto allocate = structure<VkMemoryAllocateInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO);
  allocate.pNext = &flags;
  allocate.allocationSize = static_cast<VkDeviceSize>(bytes);
  allocate.memoryTypeIndex = static_cast<std::uint32_t>(std::countr_zero(types));
  VkResult made = calls.AllocateMemory(device->handle(), &allocate, nullptr, &buffer.memory_);
  buffer.bytes_ = bytes;
  buffer.imported_ = true;
  if (made == VK_SUCCESS) made = buffer.bind(false);
  if (made != VK_SUCCESS) return call_failed(made, kDoing);
  return buffer;
}

Expected<void> Uploader::copy(const Buffer& to, std::span<const std::byte> bytes, std::int64_t first) {
  if (to.data() != nullptr) {
    std::memcpy(to.data() + first, bytes.data(), bytes.size());
    return {};
  }
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (stage_.bytes() < std::min(size, kPiece)) {
    DLLM_TRY(stage_, Buffer::make(device_, kPiece, Place::kShared, "a piece of the weights"));
  }
  for (std::int64_t at = 0; at < size; at += kPiece) {
    const std::int64_t count = std::min(kPiece, size - at);
    std::memcpy(stage_.data(), bytes.data() + at, static_cast<std::size_t>(count));
    DLLM_TRY(Commands commands, Commands::begin(device_));
    commands.copy(stage_, 0, to, first + at, count);
    DLLM_CHECK_OK(commands.end());
    DLLM_CHECK_OK(commands.run("the copy of weights"));
  }
  return {};
}

}  // namespace dllm::vulkan
