#include "vulkan/api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/try.h"

namespace dllm::vulkan {
namespace {

constexpr const char* kLoader = "libvulkan.so.1";
constexpr const char* kValidation = "VK_LAYER_KHRONOS_validation";

/// Never closed: drivers start threads and register exits that outlive an unloaded library.
PFN_vkGetInstanceProcAddr loader() {
  static const auto found = [] {
    void* const library = dlopen(kLoader, RTLD_NOW | RTLD_LOCAL);
    return library == nullptr ? nullptr
                              : reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
  }();
  return found;
}

VKAPI_ATTR VkBool32 VKAPI_CALL note_message(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                            const VkDebugUtilsMessengerCallbackDataEXT* data, void* messages) {
  static_cast<std::string*>(messages)->append(data->pMessage).append("\n");
  return VK_FALSE;
}

bool has_validation(PFN_vkGetInstanceProcAddr get) {
  const auto list =
      reinterpret_cast<PFN_vkEnumerateInstanceLayerProperties>(get(nullptr, "vkEnumerateInstanceLayerProperties"));
  std::uint32_t count = 0;
  if (list == nullptr || list(&count, nullptr) != VK_SUCCESS) return false;
  std::vector<VkLayerProperties> layers(count);
  if (list(&count, layers.data()) != VK_SUCCESS) return false;
  for (const VkLayerProperties& layer : layers)
    if (std::string_view(layer.layerName) == kValidation) return true;
  return false;
}

}  // namespace

Instance::~Instance() {
  if (messenger != VK_NULL_HANDLE) calls.DestroyDebugUtilsMessengerEXT(handle, messenger, nullptr);
  if (handle != VK_NULL_HANDLE) calls.DestroyInstance(handle, nullptr);
}

Error no_vulkan(std::string what) {
  return {ErrorCode::kUnsupported, std::move(what), "--backend vulkan",
          "install the driver of the GPU, or Debian's mesa-vulkan-drivers, which also runs on the processor"};
}

Error call_failed(VkResult result, std::string_view doing) {
  switch (result) {
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
      return {ErrorCode::kResource, fmt::format("the Vulkan device has no memory left for {}", doing), "",
              "use a smaller model, a shorter context or fewer requests at a time"};
    case VK_ERROR_OUT_OF_HOST_MEMORY:
      return {ErrorCode::kResource, fmt::format("out of memory for {}", doing), "", ""};
    case VK_ERROR_DEVICE_LOST:
      return {ErrorCode::kResource, fmt::format("the Vulkan device was lost in {}", doing), "",
              "the kernel's log says why; start again when the device answers"};
    default:
      return {ErrorCode::kResource,
              fmt::format("the Vulkan driver failed in {} with error {}", doing, static_cast<int>(result)), "", ""};
  }
}

Expected<std::shared_ptr<Instance>> open_instance(bool validate) {
  const PFN_vkGetInstanceProcAddr get = loader();
  if (get == nullptr) return no_vulkan(fmt::format("this machine has no {}", kLoader));
  const auto version = reinterpret_cast<PFN_vkEnumerateInstanceVersion>(get(nullptr, "vkEnumerateInstanceVersion"));
  std::uint32_t known = VK_API_VERSION_1_0;
  if (version != nullptr) version(&known);
  if (known < VK_API_VERSION_1_2) return no_vulkan("Vulkan 1.2 or later is needed");

  auto instance = std::make_shared<Instance>();
  instance->validates = validate && has_validation(get);
  auto application = structure<VkApplicationInfo>(VK_STRUCTURE_TYPE_APPLICATION_INFO);
  application.pApplicationName = "dllm";
  application.apiVersion = VK_API_VERSION_1_2;
  auto info = structure<VkInstanceCreateInfo>(VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
  info.pApplicationInfo = &application;
  const char* const extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
  if (instance->validates) {
    info.enabledLayerCount = info.enabledExtensionCount = 1;
    info.ppEnabledLayerNames = &kValidation;
    info.ppEnabledExtensionNames = &extension;
  }
  const auto create = reinterpret_cast<PFN_vkCreateInstance>(get(nullptr, "vkCreateInstance"));
  if (create == nullptr) return no_vulkan(fmt::format("{} is damaged", kLoader));
  if (const VkResult made = create(&info, nullptr, &instance->handle); made != VK_SUCCESS) {
    if (made == VK_ERROR_INCOMPATIBLE_DRIVER) return no_vulkan("this machine has no Vulkan driver");
    return call_failed(made, "the start of Vulkan");
  }
#define DLLM_VULKAN_FIND(name) instance->calls.name = reinterpret_cast<PFN_vk##name>(get(instance->handle, "vk" #name));
  DLLM_VULKAN_INSTANCE_CALLS(DLLM_VULKAN_FIND)
#undef DLLM_VULKAN_FIND
  if (!instance->validates) return instance;

  auto messenger =
      structure<VkDebugUtilsMessengerCreateInfoEXT>(VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT);
  messenger.messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  messenger.messageType =
      VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT;
  messenger.pfnUserCallback = note_message;
  messenger.pUserData = instance->messages.get();
  const VkResult made =
      instance->calls.CreateDebugUtilsMessengerEXT(instance->handle, &messenger, nullptr, &instance->messenger);
  if (made != VK_SUCCESS) return call_failed(made, "the start of Vulkan's validation");
  return instance;
}

Expected<DeviceCalls> device_calls(const Instance& instance, VkDevice device) {
  DeviceCalls calls;
#define DLLM_VULKAN_FIND(name)                                                                       \
  calls.name = reinterpret_cast<PFN_vk##name>(instance.calls.GetDeviceProcAddr(device, "vk" #name)); \
  if (calls.name == nullptr) return no_vulkan("the driver has no vk" #name);
  DLLM_VULKAN_DEVICE_CALLS(DLLM_VULKAN_FIND)
#undef DLLM_VULKAN_FIND
  return calls;
}

std::optional<CudaCalls> cuda_calls(const Instance& instance, VkDevice device) {
  CudaCalls calls;
#define DLLM_VULKAN_FIND(name)                                                                       \
  calls.name = reinterpret_cast<PFN_vk##name>(instance.calls.GetDeviceProcAddr(device, "vk" #name)); \
  if (calls.name == nullptr) return std::nullopt;
  DLLM_VULKAN_CUDA_CALLS(DLLM_VULKAN_FIND)
#undef DLLM_VULKAN_FIND
  return calls;
}

}  // namespace dllm::vulkan
