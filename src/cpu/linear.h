#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <new>

#include "base/thread_pool.h"
#include "cpu/buffer.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/packed_weights.h"
#include "model/weights.h"

namespace dllm::cpu {

/// parallel_for without the allocation of a std::function (only a reference to `body` is wrapped), and with running out
/// of memory in a task reported as std::bad_alloc here rather than ending the process there.
template <class Body>
void parallel(ThreadPool& pool, std::int64_t tasks, const Body& body) {
  std::atomic<bool> exhausted{false};
  const auto guarded = [&](std::int64_t task, int worker) {
    try {
      body(task, worker);
    } catch (const std::bad_alloc&) {
      exhausted.store(true, std::memory_order_relaxed);
    }
  };
  pool.parallel_for(tasks, std::cref(guarded));
  if (exhausted.load(std::memory_order_relaxed)) throw std::bad_alloc();
}

/// parallel over items in runs that are worth a task: `cost` is the work of one item in elements touched. Below some
/// 16 k elements (a few microseconds) waking a thread costs more than it brings.
template <class Body>
void parallel_items(ThreadPool& pool, std::int64_t items, std::int64_t cost, const Body& body) {
  const std::int64_t run = std::int64_t{16384} / (cost > 0 ? cost : 1) + 1;
  parallel(pool, (items + run - 1) / run, [&](std::int64_t task, int worker) {
    const std::int64_t end = (task + 1) * run < items ? (task + 1) * run : items;
    for (std::int64_t i = task * run; i < end; ++i) body(i, worker);
  });
}

/// Products with weights: chooses the family of kernels, prepares activations, splits outputs into tasks.
class LinearRunner {
 public:
  LinearRunner(const KernelSet& kernels, ThreadPool& pool);

  /// Arguments for rows of `x` ([rows][k]): the kernels of the weight's format if it is `packed`, else the float family
  /// over `weight` as it stands. Quantizes or groups x for the former; the result is reused as long as `value` stays
  /// the same (q, k and v read one input), so it names x uniquely until forget(). Throws std::bad_alloc.
  LinearArgs prepare(const WeightView& weight, const PackedWeight* packed, const float* bias, const float* x,
                     std::int64_t rows, std::int64_t value);
  void forget() { quantized_value_ = grouped_value_ = -1; }

  /// All outputs: out[rows][n].
  void run(const LinearArgs& args, std::int64_t n, float* out);
  void* scratch(int worker);

 private:
  void quantize(const float* x, std::int64_t rows, std::int64_t k, bool exact);
  void group_rows(const float* x, std::int64_t rows, std::int64_t k);

  const KernelSet& kernels_;
  ThreadPool& pool_;
  Buffer scratch_;
  Buffer activations_;
  QuantizedRows quantized_;
  std::int64_t quantized_value_ = -1;
  bool quantized_exactly_ = false;
  Buffer groups_;
  std::int64_t grouped_value_ = -1;
  const PackedFormat* corrected_for_ = nullptr;  ///< the format whose zero point quantized_.corrections hold
};

}  // namespace dllm::cpu
