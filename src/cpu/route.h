#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernels/kernel_set.h"
#include "graph/graph.h"

namespace dllm::cpu {

/// Router logits of a step and what becomes of them.
struct RouteArgs {
  std::int64_t experts = 0, rows = 0;
  const float* logits = nullptr;  ///< [rows][experts]
  const float* bias = nullptr;    ///< [experts] or null: added to scores for the choice
  const float* scale = nullptr;   ///< [experts] or null: of each expert's weight
  /// First rows of the blocks in which rows share a pool, ascending, followed by `rows`; read if the operator routes by
  /// block.
  std::span<const std::int64_t> runs;
  float* out = nullptr;  ///< [rows][2 used]: experts, then their weights
};

/// Chooses experts (op::Route). A row's result depends only on that row or, with block routing, on the rows of its
/// block; never on the batch or the number of threads.
class RouteRunner {
 public:
  RouteRunner(const KernelSet& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  /// Throws std::bad_alloc.
  void run(const op::Route& o, const RouteArgs& args);

 private:
  /// Scratch memory of one worker: three sets of experts, and a float for each.
  struct Scratch {
    std::span<std::uint8_t> allowed, chosen, all;
    std::span<float> floats;
  };
  Scratch scratch(int worker, std::size_t experts);

  void score(const op::Route& o, const RouteArgs& args, std::int64_t row);
  void choose_row(const op::Route& o, const RouteArgs& args, std::int64_t row, const Scratch& scratch);

  const KernelSet& kernels_;
  ThreadPool& pool_;
  std::vector<float> scores_;  ///< [rows][experts]
  std::vector<float> keys_;    ///< [rows][experts]: the keys of the choice
  std::vector<std::uint8_t> sets_;
  std::vector<float> floats_;
};

}  // namespace dllm::cpu
