#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "cpu/buffer.h"
#include "cpu/kernels/kernel_set.h"

namespace dllm::cpu {

/// Rows in `memory`, which holds them until it is reserved again; not yet filled. Throws std::bad_alloc.
SuperRows place_super_rows(Buffer& memory, std::int64_t groups, std::int64_t k);

/// Rows of one value as products of the arithmetic `super` read them. q, k and v read one input: quantized rows are
/// kept until another value comes.
class SuperRowStore {
 public:
  /// Rows of x[rows][k]; `value` identifies x until clear(). Throws std::bad_alloc.
  SuperRows of(const KernelSet& kernels, ThreadPool& pool, std::int64_t value, const float* x, std::int64_t rows,
               std::int64_t k);
  /// Forgets all rows.
  void clear() { value_ = -1; }

 private:
  Buffer memory_;
  SuperRows rows_;
  std::int64_t value_ = -1;
};

}  // namespace dllm::cpu
