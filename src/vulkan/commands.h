#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include "dllm/error.h"
#include "vulkan/buffer.h"
#include "vulkan/cuda_kernels.h"
#include "vulkan/device.h"
#include "vulkan/shaders.h"
#include "vulkan/timestamps.h"

namespace dllm::vulkan {

/// Bytes of arguments that every Vulkan device takes with a dispatch.
inline constexpr std::uint32_t kMostPushBytes = 128;

/// Constants of a pipeline, by their constant_id; shaders/exact.glsl says what the first two are.
using PipelineConstants = std::array<std::uint32_t, 14>;

/// Workgroups of a dispatch, in memory.
struct GroupCounts {
  std::uint32_t x = 0, y = 1, z = 1;
};

/// A shader, compiled for a device with its constants, or a kernel of CUDA. Move-only.
class Pipeline {
 public:
  Pipeline() = default;
  /// Errors: kUnsupported (this build has no such shader), kResource.
  static Expected<Pipeline> make(std::shared_ptr<Device> device, std::string_view shader, ShaderForm form,
                                 const PipelineConstants& constants);
  /// A kernel of a module, which takes what a dispatch pushes as its one argument, in blocks of so many threads.
  /// Errors: kResource.
  static Expected<Pipeline> make(std::shared_ptr<const CudaModule> module, std::string_view kernel,
                                 std::uint32_t threads);
  ~Pipeline();
  Pipeline(Pipeline&& other) noexcept { swap(other); }
  Pipeline& operator=(Pipeline&& other) noexcept {
    swap(other);
    return *this;
  }
  VkPipeline handle() const { return handle_; }
  /// Null: it is a shader.
  VkCuFunctionNVX kernel() const { return kernel_; }
  std::uint32_t threads() const { return threads_; }

 private:
  void swap(Pipeline& other) noexcept;

  std::shared_ptr<Device> device_;
  std::shared_ptr<const CudaModule> module_;
  VkPipeline handle_ = VK_NULL_HANDLE;
  VkCuFunctionNVX kernel_ = VK_NULL_HANDLE;
  std::uint32_t threads_ = 0;
};

/// A command buffer: recorded once, run as often as needed. Move-only.
class Commands {
 public:
  /// `repeats`: it may be submitted again before it has ended. Errors: kResource.
  static Expected<Commands> begin(std::shared_ptr<Device> device, bool repeats = false);
  ~Commands();
  Commands(Commands&& other) noexcept { swap(other); }
  Commands& operator=(Commands&& other) noexcept {
    swap(other);
    return *this;
  }

  /// A dispatch whose workgroups are counted now.
  template <class Push>
  void dispatch(const Pipeline& pipeline, const Push& push, GroupCounts groups) {
    if (pipeline.kernel() != VK_NULL_HANDLE) return launch(pipeline, &push, groups);
    bind(pipeline, push);
    device_->calls().CmdDispatch(handle_, groups.x, groups.y, groups.z);
  }
  /// A dispatch that reads a GroupCounts at `offset` of `counts` whenever it runs. A kernel of CUDA cannot: it has the
  /// blocks of `most`, and those beyond the rows end at once.
  template <class Push>
  void dispatch(const Pipeline& pipeline, const Push& push, const Buffer& counts, std::int64_t offset,
                GroupCounts most) {
    if (pipeline.kernel() != VK_NULL_HANDLE) return launch(pipeline, &push, most);
    bind(pipeline, push);
    device_->calls().CmdDispatchIndirect(handle_, counts.handle(), static_cast<VkDeviceSize>(offset));
  }
  /// Notes the time when all that was recorded before has run. The first of a recording (`place` 0) clears the others.
  void stamp(const Timestamps& times, std::uint32_t place);
  /// What is recorded from here on sees what was written before.
  void barrier();
  /// The same for what copies have written, and also for the counts that dispatches read. Not each barrier does this:
  /// on an H200 more stages take twice as long.
  void arguments_barrier();
  /// The same for what the pass before has written, the counts that dispatches read among it.
  void between_passes();
  void copy(const Buffer& from, std::int64_t from_offset, const Buffer& to, std::int64_t to_offset, std::int64_t bytes);
  void copy(const Buffer& from, const Buffer& to, std::span<const VkBufferCopy> regions);

  /// Ends the recording; results become visible to this processor. Errors: kResource.
  Expected<void> end();
  /// Runs it so many times in a row and waits. Errors: as Device::run().
  Expected<void> run(std::string_view doing, std::int32_t times = 1) const {
    return device_->run(handle_, doing, times);
  }

 private:
  Commands() = default;
  void swap(Commands& other) noexcept;
  template <class Push>
  void bind(const Pipeline& pipeline, const Push& push) {
    static_assert(std::is_trivially_copyable_v<Push> && sizeof(Push) <= kMostPushBytes);
    bind(pipeline, &push, sizeof push);
  }
  void bind(const Pipeline& pipeline, const void* push, std::uint32_t bytes);
  void launch(const Pipeline& pipeline, const void* push, GroupCounts groups);

  std::shared_ptr<Device> device_;
  VkCommandBuffer handle_ = VK_NULL_HANDLE;
};

}  // namespace dllm::vulkan
