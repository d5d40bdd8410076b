#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/weight_cache.h"
#include "dllm/error.h"
#include "graph/graph.h"
#include "model/weights.h"
#include "vulkan/buffer.h"
#include "vulkan/operators.h"

namespace dllm::vulkan {

/// A model's weights in a device's memory: matrices in the CPU's panels, vectors as float32. Tables for look-ups stay
/// in the file.
class DeviceWeights {
 public:
  /// `weights` are those that the graph reads. Errors: kResource, with the tensor that found no room. Throws
  /// std::bad_alloc, cpu::PackingStopped.
  static Expected<DeviceWeights> load(const std::shared_ptr<Device>& device, const Graph& graph, const Weights& weights,
                                      ThreadPool& pool, const WeightCacheOptions& cache,
                                      const std::function<bool(double)>& progress);

  const DeviceMatrix& matrix(WeightId id) const { return matrices_[static_cast<std::size_t>(id)]; }
  /// 0: there is none.
  VkDeviceAddress vector(WeightId id) const { return id == kNoId ? 0 : vectors_[static_cast<std::size_t>(id)]; }
  /// A transform of the graph.
  const DeviceHadamard& hadamard(std::int64_t order) const;

 private:
  Expected<void> load_vectors(const std::shared_ptr<Device>& device, const Graph& graph, const Weights& weights);

  std::vector<Buffer> buffers_;
  std::vector<DeviceMatrix> matrices_;    ///< by WeightId
  std::vector<VkDeviceAddress> vectors_;  ///< by WeightId
  std::vector<DeviceHadamard> hadamards_;
};

/// The numbers of a vector of the model, as float32.
std::vector<float> decoded(const WeightView& view);

}  // namespace dllm::vulkan
