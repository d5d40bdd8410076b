#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/packed_weights.h"
#include "cpu/weight_cache.h"
#include "dllm/error.h"
#include "format/mapped_file.h"
#include "graph/graph.h"
#include "model/weights.h"
#include "vulkan/buffer.h"
#include "vulkan/operators.h"

namespace dllm::vulkan {

/// A model's weights in a device's memory: matrices in the CPU's panels, vectors as float32. Tables for look-ups stay
/// in the file. A device without memory of its own reads the CPU's panels where they are (DeviceFacts::imports).
class DeviceWeights {
 public:
  /// `weights` are those that the graph reads. `halves`: products with F16 and BF16 may run in F16. Errors: kResource,
  /// before anything is packed if the device is too small, else with the tensor that found no room. Throws
  /// std::bad_alloc, cpu::PackingStopped.
  static Expected<DeviceWeights> load(const std::shared_ptr<Device>& device, const Graph& graph, const Weights& weights,
                                      ThreadPool& pool, const WeightCacheOptions& cache,
                                      const std::function<bool(double)>& progress, bool halves = false);

  const DeviceMatrix& matrix(WeightId id) const { return matrices_[static_cast<std::size_t>(id)]; }
  /// 0: there is none.
  VkDeviceAddress vector(WeightId id) const { return id == kNoId ? 0 : vectors_[static_cast<std::size_t>(id)]; }
  /// Whether products of some matrix run in F16.
  bool has_halves() const;
  /// Of the matrices, those read without a copy.
  std::int64_t imported_bytes() const { return imported_bytes_; }
  /// The weight cache's file, if matrices are read from it; else null.
  const std::shared_ptr<const MappedFile>& file() const { return panels_.file(); }
  /// A transform of the graph.
  const DeviceHadamard& hadamard(std::int64_t order) const;

 private:
  Expected<void> load_vectors(const std::shared_ptr<Device>& device, const Graph& graph, const Weights& weights,
                              Uploader& uploader);
  /// The panels of a matrix, imported or copied. `name`: of the tensor.
  Expected<Buffer> place(const std::shared_ptr<Device>& device, const cpu::PackedWeight& matrix,
                         const std::string& name, Uploader& uploader);

  cpu::PackedWeights panels_;  ///< empty unless they are imported; outlives `buffers_`
  std::vector<Buffer> buffers_;
  std::vector<DeviceMatrix> matrices_;    ///< by WeightId
  std::vector<VkDeviceAddress> vectors_;  ///< by WeightId
  std::vector<DeviceHadamard> hadamards_;
  std::int64_t imported_bytes_ = 0;
};

/// The exponent field, as a float32's, of a matrix's largest magnitude; nothing if its type is not F16 or BF16, a
/// number is infinite or NaN, or all are so small that a product in F16 would lose them.
std::optional<std::int32_t> half_exponent(const WeightView& view, ThreadPool& pool);

/// The numbers of a vector of the model, as float32.
std::vector<float> decoded(const WeightView& view);

}  // namespace dllm::vulkan
