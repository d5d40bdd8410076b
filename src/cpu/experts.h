#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "cpu/buffer.h"
#include "cpu/expert_rows.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/linear.h"
#include "cpu/rank_gather.h"
#include "graph/graph.h"

namespace dllm::cpu {

/// A stack of matrices, one per expert: as stored in the file, and packed (or null).
struct ExpertStack {
  const WeightView* view = nullptr;
  const PackedWeight* packed = nullptr;
};

/// One op::Experts of a step.
struct ExpertArgs {
  ExpertStack gate, up, down;
  const float* x = nullptr;  ///< [rows][k]
  std::int64_t rows = 0;
  std::int64_t value = 0;        ///< identifies x, see LinearRunner::prepare()
  const float* route = nullptr;  ///< [rows][2 used], as op::Route writes it
  std::int64_t used = 0;
  Activation activation = Activation::kSilu;
  HadamardArgs hadamard{};  ///< of the input of `down`; order 0: none
  /// Outputs of gate and up on each rank, whose results are gathered before `down`; empty: all are here.
  std::span<const std::int64_t> parts{};
  RankGather* ranks = nullptr;  ///< with `parts`
};

/// Runs op::Experts: rows are grouped by expert, so that a step reads every touched expert's weights once, whatever the
/// number of rows, with LinearRunner's kernels for many rows.
///
/// Two passes. The first goes over (expert, columns of gate and up): both products of some columns, SwiGLU, and the
/// quantization for `down`, while they are in the second-level cache. The second goes over columns of the output and
/// adds the experts up in ascending order: no two tasks write the same float, and a row's sum has a fixed order
/// whatever the batch, the grouping and the threads. (The alternative, one task per expert over all its columns, would
/// need an output per pair of row and expert, `used` times the size of the result, written and read again.)
class ExpertRunner {
 public:
  ExpertRunner(const KernelSet& kernels, ThreadPool& pool, LinearRunner& linear);

  /// out[rows][width of down]. Throws std::bad_alloc.
  void run(const ExpertArgs& args, float* out);

 private:
  void make_inputs(const ExpertArgs& args);
  /// Rows of x, one per pair (`row_of` empty) or chosen by pair, in the groups that the product reads.
  void group_rows(const PackedWeight& packed, const float* x, std::span<const std::int32_t> row_of, PairRows& rows,
                  LinearArgs& args);
  void inner_pass();
  void inner_columns(const ExpertGroup& group, std::int64_t column, std::int64_t columns, int worker);
  void keep_inner(const float* tile, std::int64_t pair, std::int64_t rows, std::int64_t column, std::int64_t columns);
  void gather_inner(const ExpertArgs& args);
  void rotate_inner();
  void finish_inner();
  void outer_columns(std::int64_t column, std::int64_t columns, std::int64_t rows, int worker, float* out);
  float* tile(int worker, int which);

  const KernelSet& kernels_;
  ThreadPool& pool_;
  LinearRunner& linear_;
  Buffer tiles_;

  // The current operator.
  ExpertPairs pairs_;
  PairRows gate_rows_, up_rows_, down_rows_;
  Buffer inner_memory_;
  HadamardArgs hadamard_;
  Buffer unrotated_;             ///< rows of pairs that are rotated before they are quantized
  LinearArgs gate_, up_, down_;  ///< over pairs; `down_` reads what the first pass writes
  const PackedWeight* packed_[3] = {nullptr, nullptr, nullptr};
  std::int64_t matrix_bytes_[3] = {0, 0, 0};  ///< of weights that are not packed: from one expert to the next
  std::int64_t first_inner_ = 0;              ///< column of `down`'s input that is gate's first
  bool exact_inner_ = false;
  std::atomic<bool> regular_inner_{false};
  void (*gated_)(const float* gate, const float* up, std::int64_t n, float* out) = nullptr;
};

}  // namespace dllm::cpu
