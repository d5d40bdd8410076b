#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "dllm/error.h"
#include "model/source.h"
#include "numerics/tensor_type.h"

namespace dllm {

/// Brings one tensor after the other into another type, rows in parallel. Holds one tensor's result and a few rows per
/// thread; every chunk of rows is encoded on its own, so the bytes do not depend on the number of threads.
class TensorEncoder {
 public:
  explicit TensorEncoder(int threads);

  /// The tensor's bytes in `type`, valid until the next call; unchanged if it has that type already. Preconditions: the
  /// rows fit the blocks of `type`, which has an encoder. Errors (kInvalidFile): a NaN or infinite weight, or one whose
  /// encoding would be infinite; both name the element.
  Expected<std::span<const std::byte>> encode(const SourceTensor& tensor, TensorType type);

 private:
  struct Job;
  void encode_rows(const Job& job, std::int64_t first, std::int64_t end, float* scratch);

  ThreadPool pool_;
  std::vector<std::vector<float>> scratch_;  ///< by worker
  std::vector<std::byte> ordered_;           ///< the source's rows in GGUF order
  std::vector<std::byte> encoded_;
  std::atomic<std::int64_t> not_finite_{0};  ///< first such element of the tensor
  std::atomic<std::int64_t> overflow_{0};
};

}  // namespace dllm
