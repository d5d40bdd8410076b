#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "cpu/cpu_backend.h"
#include "cpu/peak.h"
#include "dllm/error.h"
#include "format/mapped_file.h"
#include "model/model_desc.h"
#include "model/weights.h"

namespace dllm {

namespace cpu {
class Profile;
}

/// Rounding of products with weights.
enum class VulkanArithmetic : std::uint8_t {
  kExact,  ///< the bits of the CPU backend
  kF16,    ///< F16 and BF16 weights in F16 on matrix units, sums in F32 (docs/design/arithmetic.md); others as kExact
};

struct VulkanOptions {
  std::string device;  ///< index or a part of the name of a device; empty: the first of the best kind
  int threads = 0;     ///< that pack weights and reduce logits; 0: every CPU this process may use
  CpuKvType kv = CpuKvType::kAuto;
  VulkanArithmetic arithmetic = VulkanArithmetic::kExact;
  WeightCacheOptions weight_cache{};
  LoadProgress progress{};
  std::int32_t unroll = 1;  ///< most passes in a row, where the decoder says what it commits (backend/unrolling.h)
  bool validate = false;    ///< with the Khronos validation layer, if it is installed
};

/// Runs a model's graph on a Vulkan device, with the bits of the CPU backend's arithmetic `exact`. Steps are recorded
/// once for a number of rows and visible positions, and replayed. Embeddings are looked up by this processor. Logits
/// are reduced on the device, in chunks that are merged here.
class VulkanBackend : public Backend {
 public:
  virtual const std::string& device() const = 0;    ///< its name
  virtual std::string_view arithmetic() const = 0;  ///< of products with weights: "exact" or "f16"
  /// How the device is made to round: "fma by float64, corrected division".
  virtual const std::string& rounding() const = 0;
  virtual std::string_view kv_type() const = 0;  ///< "f32", "f16", "bf16", "q8_0" or "q4_0"
  /// Threads of this processor.
  virtual int threads() const = 0;
  /// Recordings of a step so far: one more whenever a pass has more rows or positions than all before it.
  virtual std::int64_t recordings() const = 0;
  /// Memory of the device that weights, caches and passes take. This and the next six: thread-safe.
  virtual std::int64_t device_bytes() const = 0;
  /// Weights that the device reads in this processor's memory, where the CPU backend would have them; not part of
  /// device_bytes().
  virtual std::int64_t imported_bytes() const = 0;
  /// The weight cache's file, if they are in it; else null.
  virtual const std::shared_ptr<const MappedFile>& weight_cache() const = 0;
  /// All memory of the device; 0: unknown.
  virtual std::int64_t memory_bytes() const = 0;
  /// Passes so far, and the seconds from their submission to their ends.
  virtual std::uint64_t passes() const = 0;
  virtual double pass_seconds() const = 0;
  /// Passes that had run when they were asked for, as others ran in a row with them; and how often passes that had run
  /// were discarded, because another pass or a copy of the cache was asked for. Thread-safe.
  virtual std::uint64_t passes_ahead() const = 0;
  virtual std::uint64_t passes_undone() const = 0;
  /// Why the device runs nothing any more; empty: it does.
  virtual std::string failure() const = 0;
  /// Of device_bytes(), memory for whole rows of logits: 0 until a request needs them, for draws, filters, lists,
  /// adjustments, guidance or itself.
  virtual std::int64_t logit_bytes() const = 0;
  /// From the next recording on, the device times shaders and every pass adds their times, by name, to `profile`, which
  /// is borrowed; nullptr: no longer. Passes take longer for it, by a timestamp at each barrier.
  virtual void time_shaders(cpu::Profile* profile) = 0;
  /// What the validation layer said, a line each; empty without it.
  virtual const std::string& messages() const = 0;
};

/// Whether this build has the backend.
bool has_vulkan();
/// What a build without it says to those who want it.
std::string_view vulkan_missing();

/// A device of this machine.
struct VulkanDevice {
  std::string name;
  std::string_view kind;          ///< "discrete", "integrated", "virtual", "processor", "other"
  std::int64_t memory_bytes = 0;  ///< of its largest heap
  std::string lacks;              ///< what the backend needs and it has not got; empty: nothing
  bool standard = false;          ///< used if none is named
};
/// Errors: kUnsupported (this build or this machine has no Vulkan, or no device of it), kResource.
Expected<std::vector<VulkanDevice>> vulkan_devices();

/// Opens a device by VulkanOptions::device, for measurements of its peaks whenever it is called
/// (vulkan/peaks.h). Errors: as check_vulkan_device(), kUnsupported (it has no timestamps).
Expected<std::function<Expected<cpu::Peaks>()>> vulkan_peaks(const std::string& device);

/// Whether VulkanOptions::device may have this value here. Errors: kUsage (no device, or several), kUnsupported.
Expected<void> check_vulkan_device(const std::string& device);

/// `weights` are views: their owner must outlive the backend. Errors: kUsage (no such device), kUnsupported (no Vulkan,
/// a device that fails the self-test, an operator, a weight type or a cache type that the backend does not run: by
/// name; passes in a row of a model or on a device that does not allow them), kInvalidFile (as CpuBackend::create()),
/// kResource, kCancelled.
Expected<std::unique_ptr<VulkanBackend>> make_vulkan_backend(ModelDesc desc, GraphFactory graph, Weights weights,
                                                             VulkanOptions options = {});

}  // namespace dllm
