#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "vulkan/api.h"

namespace dllm::vulkan {

/// A cooperative matrix operation: [m][k] times [k][n].
struct MatrixShape {
  std::uint32_t m = 0, n = 0, k = 0;
  bool operator==(const MatrixShape&) const = default;
};

/// What a device says about itself.
struct DeviceFacts {
  std::string name;
  VkPhysicalDeviceType type = VK_PHYSICAL_DEVICE_TYPE_OTHER;
  std::int64_t memory_bytes = 0;      ///< of its largest heap
  bool has_float64 = false;           ///< shaders may use float64
  bool keeps_subnormals = false;      ///< shaders may ask that float32 keeps subnormal numbers
  std::uint32_t most_groups = 65535;  ///< workgroups of a dispatch in each direction
  std::int64_t most_allocation = 0;   ///< bytes of one allocation
  /// Memory of this processor, in pages of kImportedPage, can be its own: a unit that has none apart.
  bool imports = false;
  std::uint32_t subgroup = 0;              ///< invocations of a subgroup; 0: not always as many
  std::uint32_t most_shared = 0;           ///< bytes of memory that a workgroup shares
  bool has_dots = false;                   ///< sums of four products of bytes as one instruction
  std::vector<MatrixShape> matrices;       ///< of int8 that a subgroup multiplies into int32
  std::vector<MatrixShape> half_matrices;  ///< of F16 that it multiplies into F32
  bool device_scope = false;               ///< with matrices: shaders may order memory for the whole device
  bool runs_cuda = false;                  ///< kernels of CUDA among shaders: VK_NVX_binary_import
  double tick_ns = 0;                      ///< of timestamps; 0: it has none
  std::vector<std::string> lacks;          ///< what the backend needs and this device has not got, in Vulkan's words
};

/// Where imported memory may begin and end.
inline constexpr std::int64_t kImportedPage = 4096;

/// "discrete", "integrated", "virtual", "processor" or "other".
std::string_view kind_of(VkPhysicalDeviceType type);

/// The devices of this machine, in the driver's order. Errors: as open_instance().
Expected<std::vector<DeviceFacts>> list_devices();

/// The device that `wanted` names, by its index or by a part of its name that no other device has; empty: the first of
/// the best kind, a discrete card before an integrated one before a processor. Errors: kUsage, with the names;
/// kUnsupported (none, or the device lacks something).
Expected<std::size_t> choose_device(std::span<const DeviceFacts> devices, const std::string& wanted);

/// Where memory is, and who reaches it.
enum class Place : std::uint8_t {
  kDevice,  ///< the device's own memory; mapped only if this machine has but one kind
  kShared,  ///< written and read by this processor, read by the device
};

/// A Vulkan device with one queue. Not thread-safe: one thread at a time uses it and what was made of it.
class Device {
 public:
  struct Options {
    std::string device;     ///< for choose_device()
    bool validate = false;  ///< with the validation layer, if it is installed
    /// For tests: as if the device were a card, whose memory this processor does not reach.
    bool as_card = false;
  };

  /// Errors: those of open_instance() and choose_device(), kResource.
  static Expected<std::shared_ptr<Device>> open(const Options& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceFacts& facts() const { return facts_; }
  const DeviceCalls& calls() const { return calls_; }
  /// Null on devices that run no kernels of CUDA.
  const CudaCalls* cuda_calls() const { return cuda_calls_ ? &*cuda_calls_ : nullptr; }
  VkDevice handle() const { return handle_; }
  VkCommandPool pool() const { return pool_; }
  VkPipelineLayout layout() const { return layout_; }
  /// Index of the memory type of a place.
  std::uint32_t memory_type(Place place) const { return types_[static_cast<std::size_t>(place)]; }
  /// Whether the processor can map the memory of a place.
  bool maps(Place place) const { return mapped_[static_cast<std::size_t>(place)]; }

  /// Runs recorded commands, so many times in a row, and waits for them. Errors: kResource; a lost device stays lost.
  Expected<void> run(VkCommandBuffer commands, std::string_view doing, std::int32_t times = 1);
  /// "the Vulkan device was lost in a pass"; empty: it was not. Thread-safe.
  std::string failure() const { return lost_ ? lost_in_ : std::string(); }

  /// Whether the validation layer is on, and its messages, a line each.
  bool validates() const { return instance_->validates; }
  const std::string& messages() const { return *instance_->messages; }

  /// Memory of the buffers that exist, and the number of allocations so far.
  std::int64_t bytes_in_use() const { return bytes_in_use_; }
  std::int64_t allocations() const { return allocations_; }
  void count_allocation(std::int64_t bytes) { bytes_in_use_ += bytes, allocations_ += bytes > 0 ? 1 : 0; }

  /// The types of memory that may be made of memory of this processor, as bits. Errors: kResource.
  Expected<std::uint32_t> imported_types(const void* memory) const;

  /// For tests that let a driver fail, or have a smaller device.
  DeviceCalls& calls_for_faults() { return calls_; }
  DeviceFacts& facts_for_faults() { return facts_; }
  std::optional<CudaCalls>& cuda_calls_for_tests() { return cuda_calls_; }

 private:
  Device() = default;
  Expected<void> create(VkPhysicalDevice physical);
  Expected<void> find_memory(VkPhysicalDevice physical);

  std::shared_ptr<Instance> instance_;
  DeviceFacts facts_;
  DeviceCalls calls_;
  std::optional<CudaCalls> cuda_calls_;
  PFN_vkGetMemoryHostPointerPropertiesEXT host_pointer_properties_ = nullptr;
  VkDevice handle_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkFence fence_ = VK_NULL_HANDLE;
  std::uint32_t types_[2] = {};
  bool mapped_[2] = {};
  std::string lost_in_;  ///< written before `lost_`, and not again
  std::atomic<bool> lost_{false};
  std::atomic<std::int64_t> bytes_in_use_{0};
  std::int64_t allocations_ = 0;
};

}  // namespace dllm::vulkan
