#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/buffer.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/packed_weights.h"

namespace dllm::cpu {

/// An expert and its (row, expert) pairs: [first, last) in the order by expert.
struct ExpertGroup {
  std::int64_t expert, first, last;
  // Its first group of rows, if rows are stored in groups of kRowGroup or kSuperRows: every expert begins a new one.
  std::int64_t six, sixteen;

  std::int64_t first_of(RowForm form) const { return rows_of_group(form) == kRowGroup ? six : sixteen; }
};

/// The (row, expert) pairs of a step, sorted by expert, then by row.
struct ExpertPairs {
  std::vector<ExpertGroup> groups;       ///< of the experts that were chosen
  std::vector<std::int32_t> row_of;      ///< by pair
  std::vector<float> weight_of;          ///< by pair
  std::int64_t sixes = 0, sixteens = 0;  ///< groups

  std::int64_t count() const { return static_cast<std::int64_t>(row_of.size()); }
  /// `route` as op::Route writes it: [rows][2 used].
  void sort(const float* route, std::int64_t rows, std::int64_t used, std::int64_t experts);

 private:
  std::vector<std::int64_t> first_;  ///< by expert
};

/// Copies of a product's rows of x, one per pair, in the form that the product's kernels read.
class PairRows {
 public:
  /// Copies rows row_of of `from`: codes, or plain floats. Throws std::bad_alloc.
  LinearArgs gather(const LinearArgs& from, std::span<const std::int32_t> row_of, ThreadPool& pool);

  /// The rows x[..][k] in groups for packed floats; groups do not span experts. `row_of` gives the row of a
  /// pair, and is empty if x holds a row per pair. `args` gets the groups and their form. Throws std::bad_alloc.
  void interleave(const KernelSet& kernels, const PackedWeight& weight, const float* x,
                  std::span<const std::int32_t> row_of, const ExpertPairs& pairs, ThreadPool& pool, LinearArgs& args);

  /// The same in groups of 16 for products of the arithmetic `super`.
  void quantize_super(const KernelSet& kernels, const float* x, std::span<const std::int32_t> row_of,
                      const ExpertPairs& pairs, ThreadPool& pool, LinearArgs& args);

 private:
  bool fill(const KernelSet& kernels, RowForm form, std::int64_t k, const float* x,
            std::span<const std::int32_t> row_of, const ExpertPairs& pairs, ThreadPool& pool);

  /// Calls task(group of the expert's, pair, count, its rows) for all groups of `size` rows.
  template <class Task>
  void each_group(std::int64_t size, std::int64_t k, const float* x, std::span<const std::int32_t> row_of,
                  const ExpertPairs& pairs, ThreadPool& pool, const Task& task);

  Buffer memory_, gathered_;
};

}  // namespace dllm::cpu
