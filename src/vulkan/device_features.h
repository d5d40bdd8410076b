#pragma once

#include <string_view>
#include <vector>

#include "vulkan/api.h"
#include "vulkan/device.h"

namespace dllm::vulkan {

/// The features of a device, as Vulkan's structures linked to each other: for a query, or for a device's creation.
/// Those of extensions that the device lacks are left out.
class Features {
 public:
  /// Reads what the device has.
  Features(const Instance& instance, VkPhysicalDevice physical);
  /// Asks for what the backend uses of what the device has.
  explicit Features(const DeviceFacts& facts);
  Features(const Features&) = delete;
  Features& operator=(const Features&) = delete;

  VkPhysicalDeviceFeatures2 base = structure<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2);
  VkPhysicalDeviceVulkan12Features twelve =
      structure<VkPhysicalDeviceVulkan12Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  VkPhysicalDeviceShaderIntegerDotProductFeatures dots = structure<VkPhysicalDeviceShaderIntegerDotProductFeatures>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES);
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices = structure<VkPhysicalDeviceCooperativeMatrixFeaturesKHR>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR);
  /// Of the extensions that they need.
  std::vector<const char*> extensions;

 private:
  void link(bool has_dots, bool has_matrices);
};

/// Whether the device has an extension of that name.
bool has_extension(const Instance& instance, VkPhysicalDevice physical, std::string_view name);

/// Adds to `facts` what makes products fast: of subgroups, integer dot products and cooperative matrices.
void find_fast_products(const Instance& instance, VkPhysicalDevice physical, const Features& features,
                        DeviceFacts& facts);

}  // namespace dllm::vulkan
