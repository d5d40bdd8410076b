#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "vulkan/api_matrices.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "dllm/error.h"

// Vulkan's functions, found when the program runs: a binary starts on machines with and without a GPU, and links
// nothing.

namespace dllm::vulkan {

// Functions that an instance has.
#define DLLM_VULKAN_INSTANCE_CALLS(CALL)                \
  CALL(CreateDevice)                                    \
  CALL(CreateDebugUtilsMessengerEXT)                    \
  CALL(DestroyDebugUtilsMessengerEXT)                   \
  CALL(DestroyInstance)                                 \
  CALL(EnumerateDeviceExtensionProperties)              \
  CALL(EnumeratePhysicalDevices)                        \
  CALL(GetDeviceProcAddr)                               \
  CALL(GetPhysicalDeviceCooperativeMatrixPropertiesKHR) \
  CALL(GetPhysicalDeviceFeatures2)                      \
  CALL(GetPhysicalDeviceMemoryProperties)               \
  CALL(GetPhysicalDeviceProperties2)                    \
  CALL(GetPhysicalDeviceQueueFamilyProperties)

// Functions that a device has.
#define DLLM_VULKAN_DEVICE_CALLS(CALL) \
  CALL(AllocateCommandBuffers)         \
  CALL(AllocateMemory)                 \
  CALL(BeginCommandBuffer)             \
  CALL(BindBufferMemory)               \
  CALL(CmdBindPipeline)                \
  CALL(CmdCopyBuffer)                  \
  CALL(CmdDispatch)                    \
  CALL(CmdDispatchIndirect)            \
  CALL(CmdPipelineBarrier)             \
  CALL(CmdPushConstants)               \
  CALL(CmdResetQueryPool)              \
  CALL(CmdWriteTimestamp)              \
  CALL(CreateBuffer)                   \
  CALL(CreateCommandPool)              \
  CALL(CreateComputePipelines)         \
  CALL(CreateFence)                    \
  CALL(CreatePipelineLayout)           \
  CALL(CreateQueryPool)                \
  CALL(CreateShaderModule)             \
  CALL(DestroyBuffer)                  \
  CALL(DestroyCommandPool)             \
  CALL(DestroyDevice)                  \
  CALL(DestroyFence)                   \
  CALL(DestroyPipeline)                \
  CALL(DestroyPipelineLayout)          \
  CALL(DestroyQueryPool)               \
  CALL(DestroyShaderModule)            \
  CALL(DeviceWaitIdle)                 \
  CALL(EndCommandBuffer)               \
  CALL(FreeCommandBuffers)             \
  CALL(FreeMemory)                     \
  CALL(GetBufferDeviceAddress)         \
  CALL(GetBufferMemoryRequirements)    \
  CALL(GetDeviceQueue)                 \
  CALL(GetQueryPoolResults)            \
  CALL(MapMemory)                      \
  CALL(QueueSubmit)                    \
  CALL(ResetFences)                    \
  CALL(WaitForFences)

// Functions that NVIDIA's devices have: kernels of CUDA among a command buffer's shaders (VK_NVX_binary_import).
#define DLLM_VULKAN_CUDA_CALLS(CALL) \
  CALL(CmdCuLaunchKernelNVX)         \
  CALL(CreateCuFunctionNVX)          \
  CALL(CreateCuModuleNVX)            \
  CALL(DestroyCuFunctionNVX)         \
  CALL(DestroyCuModuleNVX)

#define DLLM_VULKAN_MEMBER(name) PFN_vk##name name = nullptr;

struct InstanceCalls {
  DLLM_VULKAN_INSTANCE_CALLS(DLLM_VULKAN_MEMBER)
};
struct DeviceCalls {
  DLLM_VULKAN_DEVICE_CALLS(DLLM_VULKAN_MEMBER)
};
struct CudaCalls {
  DLLM_VULKAN_CUDA_CALLS(DLLM_VULKAN_MEMBER)
};

#undef DLLM_VULKAN_MEMBER

/// One of Vulkan's structures, all zeros but for its type.
template <class Structure>
Structure structure(VkStructureType type) {
  Structure made{};
  made.sType = type;
  return made;
}

/// A Vulkan instance. Closed with the last pointer to it.
struct Instance {
  InstanceCalls calls;
  VkInstance handle = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger = VK_NULL_HANDLE;
  /// What the validation layer said, a line for each message.
  std::unique_ptr<std::string> messages = std::make_unique<std::string>();
  bool validates = false;

  Instance() = default;
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  ~Instance();
};

/// Opens the loader, once per process, and makes an instance of Vulkan 1.2. `validate`: with the Khronos validation
/// layer, if it is installed (Instance::validates says so). Errors: kUnsupported (no loader, or an older Vulkan, with
/// how to get one), kResource.
Expected<std::shared_ptr<Instance>> open_instance(bool validate);

/// Finds the functions of a device of this instance. Errors: kUnsupported, which names a function that it lacks.
Expected<DeviceCalls> device_calls(const Instance& instance, VkDevice device);
/// Those of VK_NVX_binary_import, which the device was made with; nothing if one is missing.
std::optional<CudaCalls> cuda_calls(const Instance& instance, VkDevice device);

/// What this machine lacks, in a sentence, as kUnsupported with how to get it.
Error no_vulkan(std::string what);

/// A call's failure: "the device has no memory left for the weights". Lost devices and refused memory are kResource.
Error call_failed(VkResult result, std::string_view doing);

}  // namespace dllm::vulkan
