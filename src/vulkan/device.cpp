#include "vulkan/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/try.h"
#include "vulkan/commands.h"
#include "vulkan/device_features.h"

namespace dllm::vulkan {
namespace {

constexpr std::uint32_t kMostInvocations = 256;  ///< of a workgroup of any shader

std::int64_t largest_heap(const Instance& instance, VkPhysicalDevice physical) {
  VkPhysicalDeviceMemoryProperties memory;
  instance.calls.GetPhysicalDeviceMemoryProperties(physical, &memory);
  std::int64_t most = 0;
  for (std::uint32_t i = 0; i < memory.memoryHeapCount; ++i)
    if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0)
      most = std::max(most, static_cast<std::int64_t>(memory.memoryHeaps[i].size));
  return most;
}

/// Only where the processor's memory is as near as any other: a card would read it through its bus.
bool can_import(const Instance& instance, VkPhysicalDevice physical, VkPhysicalDeviceType type) {
  if (type != VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU && type != VK_PHYSICAL_DEVICE_TYPE_CPU) return false;
  if (!has_extension(instance, physical, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME)) return false;
  auto host = structure<VkPhysicalDeviceExternalMemoryHostPropertiesEXT>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT);
  auto properties = structure<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2);
  properties.pNext = &host;
  instance.calls.GetPhysicalDeviceProperties2(physical, &properties);
  return host.minImportedHostPointerAlignment <= static_cast<VkDeviceSize>(kImportedPage);
}

DeviceFacts facts_of(const Instance& instance, VkPhysicalDevice physical) {
  auto twelve = structure<VkPhysicalDeviceVulkan12Properties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES);
  auto third =
      structure<VkPhysicalDeviceMaintenance3Properties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES);
  third.pNext = &twelve;
  auto properties = structure<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2);
  properties.pNext = &third;
  DeviceFacts facts;
  instance.calls.GetPhysicalDeviceProperties2(physical, &properties);
  facts.name = properties.properties.deviceName;
  facts.type = properties.properties.deviceType;
  if (properties.properties.apiVersion < VK_API_VERSION_1_2) {
    facts.lacks.emplace_back("Vulkan 1.2");
    return facts;
  }
  const VkPhysicalDeviceLimits& limits = properties.properties.limits;
  facts.most_groups = *std::min_element(limits.maxComputeWorkGroupCount, limits.maxComputeWorkGroupCount + 3);
  facts.most_allocation = static_cast<std::int64_t>(third.maxMemoryAllocationSize);
  facts.memory_bytes = largest_heap(instance, physical);
  facts.imports = can_import(instance, physical, facts.type);

  facts.runs_cuda = has_extension(instance, physical, VK_NVX_BINARY_IMPORT_EXTENSION_NAME);
  const Features features(instance, physical);
  find_fast_products(instance, physical, features, facts);
  facts.has_float64 = features.base.features.shaderFloat64 != VK_FALSE;
  facts.keeps_subnormals = twelve.shaderDenormPreserveFloat32 != VK_FALSE;
  if (limits.maxComputeWorkGroupInvocations < kMostInvocations || limits.maxComputeWorkGroupSize[0] < kMostInvocations)
    facts.lacks.push_back(fmt::format("workgroups of {} invocations", kMostInvocations));
  if (features.twelve.bufferDeviceAddress == VK_FALSE) facts.lacks.emplace_back("bufferDeviceAddress");
  if (twelve.shaderSignedZeroInfNanPreserveFloat32 == VK_FALSE)
    facts.lacks.emplace_back("shaderSignedZeroInfNanPreserveFloat32");
  return facts;
}

Expected<std::vector<VkPhysicalDevice>> physical_devices(const Instance& instance) {
  std::uint32_t count = 0;
  std::vector<VkPhysicalDevice> all;
  VkResult listed = instance.calls.EnumeratePhysicalDevices(instance.handle, &count, nullptr);
  if (listed == VK_SUCCESS && count > 0) {
    all.resize(count);
    listed = instance.calls.EnumeratePhysicalDevices(instance.handle, &count, all.data());
    all.resize(count);
  }
  // Some loaders say so at an instance's creation, others here.
  if (listed == VK_ERROR_INITIALIZATION_FAILED)
    all.clear();
  else if (listed != VK_SUCCESS)
    return call_failed(listed, "the list of devices");
  return all;
}

std::vector<DeviceFacts> facts_of(const Instance& instance, std::span<const VkPhysicalDevice> physical) {
  std::vector<DeviceFacts> all;
  all.reserve(physical.size());
  for (const VkPhysicalDevice one : physical) all.push_back(facts_of(instance, one));
  return all;
}

std::string names_of(std::span<const DeviceFacts> devices) {
  std::string names;
  for (std::size_t i = 0; i < devices.size(); ++i)
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", i, devices[i].name);
  return names;
}

bool contains(std::string_view text, std::string_view part) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::search(text.begin(), text.end(), part.begin(), part.end(),
                     [&](char a, char b) { return lower(a) == lower(b); }) != text.end();
}

/// The index that a text is, if it is a number.
std::optional<std::size_t> index_of(const std::string& text) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return index;
}

int rank(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return 2;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return 3;
    default:
      return 4;
  }
}

Expected<std::size_t> find_named(std::span<const DeviceFacts> devices, const std::string& wanted) {
  if (const auto index = index_of(wanted); index && *index < devices.size()) return *index;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (contains(devices[i].name, wanted)) found.push_back(i);
  if (found.size() == 1) return found.front();
  return Error{
      ErrorCode::kUsage,
      fmt::format("{} of this machine's Vulkan devices is '{}'", found.empty() ? "none" : "more than one", wanted),
      "--device", "by index or name: " + names_of(devices)};
}

}  // namespace

std::string_view kind_of(VkPhysicalDeviceType type) {
  constexpr std::string_view kKinds[] = {"discrete", "integrated", "virtual", "processor", "other"};
  return kKinds[rank(type)];
}

Expected<std::vector<DeviceFacts>> list_devices() {
  DLLM_TRY(const std::shared_ptr<Instance> instance, open_instance(false));
  DLLM_TRY(const std::vector<VkPhysicalDevice> physical, physical_devices(*instance));
  return facts_of(*instance, std::span(physical));
}

Expected<std::size_t> choose_device(std::span<const DeviceFacts> devices, const std::string& wanted) {
  if (devices.empty()) return no_vulkan("this machine has no Vulkan device");
  std::size_t chosen = 0;
  if (wanted.empty()) {
    // One that lacks something is chosen only if all do: its error says what.
    const auto worth = [&](std::size_t i) { return (devices[i].lacks.empty() ? 0 : 5) + rank(devices[i].type); };
    for (std::size_t i = 1; i < devices.size(); ++i)
      if (worth(i) < worth(chosen)) chosen = i;
  } else {
    DLLM_TRY(chosen, find_named(devices, wanted));
  }
  if (!devices[chosen].lacks.empty())
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{} lacks {}", devices[chosen].name, fmt::join(devices[chosen].lacks, ", ")), "--device",
                 "a newer driver may have it"};
  return chosen;
}

Device::~Device() {
  if (handle_ == VK_NULL_HANDLE) return;
  if (calls_.DeviceWaitIdle != nullptr) {
    calls_.DeviceWaitIdle(handle_);
    if (fence_ != VK_NULL_HANDLE) calls_.DestroyFence(handle_, fence_, nullptr);
    if (layout_ != VK_NULL_HANDLE) calls_.DestroyPipelineLayout(handle_, layout_, nullptr);
    if (pool_ != VK_NULL_HANDLE) calls_.DestroyCommandPool(handle_, pool_, nullptr);
    calls_.DestroyDevice(handle_, nullptr);
  }
}

Expected<void> Device::find_memory(VkPhysicalDevice physical) {
  VkPhysicalDeviceMemoryProperties memory;
  instance_->calls.GetPhysicalDeviceMemoryProperties(physical, &memory);
  constexpr VkMemoryPropertyFlags kHost = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  // Results are read by the processor: cached memory where there is some.
  const VkMemoryPropertyFlags wishes[2][2] = {{VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0},
                                              {kHost | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, kHost}};
  for (std::size_t place = 0; place < 2; ++place) {
    std::optional<std::uint32_t> found;
    for (const VkMemoryPropertyFlags wish : wishes[place])
      for (std::uint32_t i = 0; i < memory.memoryTypeCount && !found; ++i)
        if ((memory.memoryTypes[i].propertyFlags & wish) == wish) found = i;
    if (!found)
      return Error{ErrorCode::kUnsupported, facts_.name + " has no memory that the processor reaches", "--device", ""};
    types_[place] = *found;
    mapped_[place] = (memory.memoryTypes[*found].propertyFlags & kHost) == kHost;
  }
  return {};
}

Expected<void> Device::create(VkPhysicalDevice physical) {
  std::uint32_t count = 0;
  instance_->calls.GetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  instance_->calls.GetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
  const auto family = std::find_if(families.begin(), families.end(), [](const VkQueueFamilyProperties& one) {
    return (one.queueFlags & VK_QUEUE_COMPUTE_BIT) != 0;
  });
  if (family == families.end())
    return Error{ErrorCode::kUnsupported, facts_.name + " has no queue for computations", "--device", ""};

  const float priority = 1;
  auto queue = structure<VkDeviceQueueCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO);
  queue.queueFamilyIndex = static_cast<std::uint32_t>(family - families.begin());
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  const Features features(facts_);
  auto info = structure<VkDeviceCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO);
  info.pNext = &features.base;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  std::vector<const char*> extensions = features.extensions;
  if (facts_.imports) extensions.push_back(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
  if (facts_.runs_cuda) extensions.push_back(VK_NVX_BINARY_IMPORT_EXTENSION_NAME);
  info.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  if (const VkResult made = instance_->calls.CreateDevice(physical, &info, nullptr, &handle_); made != VK_SUCCESS)
    return call_failed(made, "the start of " + facts_.name);
  DLLM_TRY(calls_, device_calls(*instance_, handle_));
  if (facts_.runs_cuda) cuda_calls_ = vulkan::cuda_calls(*instance_, handle_);
  if (facts_.imports)
    host_pointer_properties_ = reinterpret_cast<PFN_vkGetMemoryHostPointerPropertiesEXT>(
        instance_->calls.GetDeviceProcAddr(handle_, "vkGetMemoryHostPointerPropertiesEXT"));
  calls_.GetDeviceQueue(handle_, queue.queueFamilyIndex, 0, &queue_);

  auto pool = structure<VkCommandPoolCreateInfo>(VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO);
  pool.queueFamilyIndex = queue.queueFamilyIndex;
  VkPushConstantRange push{VK_SHADER_STAGE_COMPUTE_BIT, 0, kMostPushBytes};
  auto layout = structure<VkPipelineLayoutCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO);
  layout.pushConstantRangeCount = 1;
  layout.pPushConstantRanges = &push;
  const auto fence = structure<VkFenceCreateInfo>(VK_STRUCTURE_TYPE_FENCE_CREATE_INFO);
  VkResult made = calls_.CreateCommandPool(handle_, &pool, nullptr, &pool_);
  if (made == VK_SUCCESS) made = calls_.CreatePipelineLayout(handle_, &layout, nullptr, &layout_);
  if (made == VK_SUCCESS) made = calls_.CreateFence(handle_, &fence, nullptr, &fence_);
  if (made != VK_SUCCESS) return call_failed(made, "the start of " + facts_.name);
  return find_memory(physical);
}

Expected<std::shared_ptr<Device>> Device::open(const Options& options) {
  DLLM_TRY(std::shared_ptr<Instance> instance, open_instance(options.validate));
  DLLM_TRY(const std::vector<VkPhysicalDevice> physical, physical_devices(*instance));
  std::vector<DeviceFacts> all = facts_of(*instance, std::span(physical));
  DLLM_TRY(const std::size_t chosen, choose_device(all, options.device));
  std::shared_ptr<Device> device(new Device);
  device->instance_ = std::move(instance);
  device->facts_ = std::move(all[chosen]);
  if (options.as_card) device->facts_.imports = false;
  DLLM_CHECK_OK(device->create(physical[chosen]));
  if (options.as_card) device->mapped_[static_cast<std::size_t>(Place::kDevice)] = false;
  return device;
}

Expected<std::uint32_t> Device::imported_types(const void* memory) const {
  auto properties = structure<VkMemoryHostPointerPropertiesEXT>(VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT);
  const VkResult asked = host_pointer_properties_ == nullptr
                             ? VK_ERROR_EXTENSION_NOT_PRESENT
                             : host_pointer_properties_(handle_, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
                                                        memory, &properties);
  if (asked != VK_SUCCESS) return call_failed(asked, "the import of memory");
  return properties.memoryTypeBits;
}

Expected<void> Device::run(VkCommandBuffer commands, std::string_view doing, std::int32_t times) {
  if (lost_) {
    Error error = call_failed(VK_ERROR_DEVICE_LOST, doing);
    error.what = lost_in_;
    return error;
  }
  auto submit = structure<VkSubmitInfo>(VK_STRUCTURE_TYPE_SUBMIT_INFO);
  const std::vector<VkCommandBuffer> all(static_cast<std::size_t>(times), commands);
  submit.commandBufferCount = static_cast<std::uint32_t>(times);
  submit.pCommandBuffers = all.data();
  VkResult done = calls_.QueueSubmit(queue_, 1, &submit, fence_);
  if (done == VK_SUCCESS) {
    done = calls_.WaitForFences(handle_, 1, &fence_, VK_TRUE, UINT64_MAX);
    if (done == VK_SUCCESS) done = calls_.ResetFences(handle_, 1, &fence_);
  }
  if (done == VK_SUCCESS) return {};
  Error error = call_failed(done, doing);
  if (done == VK_ERROR_DEVICE_LOST) {
    lost_in_ = error.what;
    lost_ = true;
  }
  // What it may still be running reads memory that the caller is about to free.
  calls_.DeviceWaitIdle(handle_);
  return error;
}

}  // namespace dllm::vulkan
