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

/// Converts tensors to another type one after the other, rows in parallel. Holds one tensor's result and a few rows per
/// thread. Each chunk of rows is encoded independently, so the bytes do not depend on the number of threads.
class TensorEncoder {
 public:
  explicit TensorEncoder(int threads);

  /// The tensor's bytes in `type`, valid until the next call; unchanged if it already has that type. Preconditions: the
  /// rows fit the blocks of `type`, which has an encoder. Errors (kInvalidFile): a weight that is NaN or infinite, or
  /// whose encoding would be infinite; the error names the element. `importance`: weights of the errors, [matrices of
  /// the tensor][columns]; empty: none. Types without a weighted encoder ignore it.
  Expected<std::span<const std::byte>> encode(const SourceTensor& tensor, TensorType type,
                                              std::span<const float> importance = {});

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
