#include "vulkan/device_features.h"

#include <algorithm>
#include <string_view>

namespace dllm::vulkan {
namespace {

std::vector<VkExtensionProperties> extensions_of(const Instance& instance, VkPhysicalDevice physical) {
  std::uint32_t count = 0;
  std::vector<VkExtensionProperties> all;
  if (instance.calls.EnumerateDeviceExtensionProperties(physical, nullptr, &count, nullptr) != VK_SUCCESS) return all;
  all.resize(count);
  instance.calls.EnumerateDeviceExtensionProperties(physical, nullptr, &count, all.data());
  all.resize(count);
  return all;
}

bool has(std::span<const VkExtensionProperties> all, std::string_view name) {
  return std::ranges::any_of(
      all, [&](const VkExtensionProperties& one) { return std::string_view(one.extensionName) == name; });
}

/// With these types of operands and of sums.
std::vector<MatrixShape> shapes_of(const Instance& instance, VkPhysicalDevice physical, VkComponentTypeKHR operands,
                                   VkComponentTypeKHR sums) {
  const auto list = instance.calls.GetPhysicalDeviceCooperativeMatrixPropertiesKHR;
  std::uint32_t count = 0;
  std::vector<MatrixShape> shapes;
  if (list == nullptr || list(physical, &count, nullptr) != VK_SUCCESS) return shapes;
  std::vector<VkCooperativeMatrixPropertiesKHR> all(
      count, structure<VkCooperativeMatrixPropertiesKHR>(VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR));
  if (list(physical, &count, all.data()) != VK_SUCCESS) return shapes;
  for (const VkCooperativeMatrixPropertiesKHR& one : all)
    if (one.scope == VK_SCOPE_SUBGROUP_KHR && one.saturatingAccumulation == VK_FALSE && one.AType == operands &&
        one.BType == operands && one.CType == sums && one.ResultType == sums)
      shapes.push_back({one.MSize, one.NSize, one.KSize});
  return shapes;
}

}  // namespace

bool has_extension(const Instance& instance, VkPhysicalDevice physical, std::string_view name) {
  return has(extensions_of(instance, physical), name);
}

void Features::link(bool has_dots, bool has_matrices) {
  base.pNext = &twelve;
  void** end = &twelve.pNext;
  if (has_dots) {
    *end = &dots;
    end = &dots.pNext;
    extensions.push_back(VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
  }
  if (has_matrices) {
    *end = &matrices;
    extensions.push_back(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
  }
}

Features::Features(const Instance& instance, VkPhysicalDevice physical) {
  const std::vector<VkExtensionProperties> all = extensions_of(instance, physical);
  link(has(all, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME), has(all, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME));
  instance.calls.GetPhysicalDeviceFeatures2(physical, &base);
}

Features::Features(const DeviceFacts& facts) {
  const bool has_matrices = !facts.matrices.empty() || !facts.half_matrices.empty();
  link(facts.has_dots, has_matrices);
  base.features.shaderFloat64 = facts.has_float64 ? VK_TRUE : VK_FALSE;
  twelve.bufferDeviceAddress = VK_TRUE;
  dots.shaderIntegerDotProduct = VK_TRUE;
  matrices.cooperativeMatrix = VK_TRUE;
  if (has_matrices) twelve.vulkanMemoryModel = VK_TRUE;
  if (has_matrices && facts.device_scope) twelve.vulkanMemoryModelDeviceScope = VK_TRUE;
  if (!facts.matrices.empty()) twelve.shaderInt8 = VK_TRUE;
  if (!facts.half_matrices.empty()) twelve.shaderFloat16 = VK_TRUE;
}

void find_fast_products(const Instance& instance, VkPhysicalDevice physical, const Features& features,
                        DeviceFacts& facts) {
  auto control = structure<VkPhysicalDeviceSubgroupSizeControlProperties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES);
  auto subgroup = structure<VkPhysicalDeviceSubgroupProperties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES);
  auto properties = structure<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2);
  properties.pNext = &subgroup;
  const bool controls = has(extensions_of(instance, physical), VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  if (controls) subgroup.pNext = &control;
  instance.calls.GetPhysicalDeviceProperties2(physical, &properties);
  if (!controls || control.minSubgroupSize == control.maxSubgroupSize) facts.subgroup = subgroup.subgroupSize;
  facts.most_shared = properties.properties.limits.maxComputeSharedMemorySize;
  if (properties.properties.limits.timestampComputeAndGraphics != VK_FALSE)
    facts.tick_ns = properties.properties.limits.timestampPeriod;
  facts.has_dots = features.dots.shaderIntegerDotProduct != VK_FALSE;
  if (features.matrices.cooperativeMatrix == VK_FALSE || features.twelve.vulkanMemoryModel == VK_FALSE) return;
  facts.device_scope = features.twelve.vulkanMemoryModelDeviceScope != VK_FALSE;
  if (features.twelve.shaderInt8 != VK_FALSE)
    facts.matrices = shapes_of(instance, physical, VK_COMPONENT_TYPE_SINT8_KHR, VK_COMPONENT_TYPE_SINT32_KHR);
  if (features.twelve.shaderFloat16 != VK_FALSE)
    facts.half_matrices = shapes_of(instance, physical, VK_COMPONENT_TYPE_FLOAT16_KHR, VK_COMPONENT_TYPE_FLOAT32_KHR);
}

}  // namespace dllm::vulkan
