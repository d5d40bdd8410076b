#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernels/kernel_set.h"
#include "graph/graph.h"

namespace dllm::cpu {

/// Chooses experts (op::Route). A row's result depends only on that row or, with block routing, on the rows of its
/// block; never on the batch or the number of threads.
class RouteRunner {
 public:
  RouteRunner(const KernelSet& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  /// `logits` [rows][experts], `bias` and `scale` (of each expert's weight) [experts] or null, `out` [rows][2 used].
  /// `runs` are the first rows of the blocks in which rows share a pool, ascending, followed by the number of rows; it
  /// is read if the operator routes by block. Throws std::bad_alloc.
  void run(const op::Route& o, std::int64_t experts, const float* logits, const float* bias,
           std::span<const std::int64_t> runs, std::int64_t rows, float* out, const float* scale = nullptr);

 private:
  /// Scratch memory of one worker: three sets of experts, and a float for each.
  struct Scratch {
    std::span<std::uint8_t> allowed, chosen, all;
    std::span<float> floats;
  };
  Scratch scratch(int worker, std::size_t experts);

  void score(const op::Route& o, std::int64_t experts, const float* logits, const float* bias, std::int64_t row);
  void choose_row(const op::Route& o, std::int64_t row, const Scratch& scratch, const float* scale, float* out);

  const KernelSet& kernels_;
  ThreadPool& pool_;
  std::vector<float> scores_;  ///< [rows][experts]
  std::vector<float> keys_;    ///< [rows][experts]: the keys of the choice
  std::vector<std::uint8_t> sets_;
  std::vector<float> floats_;
};

}  // namespace dllm::cpu
