#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "cpu/buffer.h"
#include "cpu/kernels/kernel_set.h"

namespace dllm::cpu {

/// The rows of one value in groups, as products with packed floats read them (kernel_set.h). q, k and v read one input:
/// what is grouped stays until another value comes.
class RowGroups {
 public:
  /// Of x[rows][k]; `value` names x uniquely until clear(). Throws std::bad_alloc.
  const float* of(const KernelSet& kernels, ThreadPool& pool, std::int64_t value, const float* x, std::int64_t rows,
                  std::int64_t k);
  /// Nothing is held any more.
  void clear() { value_ = -1; }

 private:
  Buffer memory_;
  std::int64_t value_ = -1;
};

}  // namespace dllm::cpu
