#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <new>
#include <span>

#include "base/thread_pool.h"
#include "cpu/activations.h"
#include "cpu/buffer.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/packed_weights.h"
#include "cpu/row_groups.h"
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

/// ThreadPool::parallel_ranges without the allocation of a std::function.
template <class Body>
void parallel_ranges(ThreadPool& pool, std::int64_t items, std::int64_t grain, const Body& body) {
  pool.parallel_ranges(items, grain, std::cref(body));
}

/// One product of a region: out[rows][n].
struct Product {
  LinearArgs args;
  std::int64_t n = 0;
  float* out = nullptr;
};

/// Products with weights: chooses the family of kernels, prepares activations, splits outputs into tasks.
class LinearRunner {
 public:
  LinearRunner(const KernelSet& kernels, ThreadPool& pool);

  /// Arguments for rows of `x` ([rows][k]): the kernels of the weight's format if it is `packed`, else the float family
  /// over `weight` as it stands. Quantizes or groups x for the former, unless that is done already: `value` names x
  /// uniquely until forget(), and q, k and v read one input. Throws std::bad_alloc.
  LinearArgs prepare(const WeightView& weight, const PackedWeight* packed, const float* bias, const float* x,
                     std::int64_t rows, std::int64_t value);
  void forget() { activations_.clear(), groups_.clear(); }

  /// Whether products with this weight want activations with exact scales.
  static bool exact_activations(const PackedWeight& weight);
  /// For whoever computes a value that products read next, and can quantize it while it is in the cache: see
  /// Activations::quantize(). All of it must be quantized before prepare(). Throws std::bad_alloc.
  Activations& begin_activations(std::int64_t value, std::int64_t rows, std::int64_t k, bool exact) {
    return activations_.begin(value, rows, k, exact);
  }

  /// All outputs of products of the same rows, in one parallel loop.
  void run(std::span<const Product> products);
  void run(const LinearArgs& args, std::int64_t n, float* out) {
    const Product product{args, n, out};
    run({&product, 1});
  }

  /// combine(begin, end), called by threads side by side, when outputs [begin, end) of both are there.
  using Combine = std::function<void(std::int64_t begin, std::int64_t end)>;
  /// Two products of the same shape and rows whose outputs are combined one by one, while they are in the cache.
  void run_gated(const Product& gate, const Product& up, const Combine& combine);

  void* scratch(int worker);

 private:
  /// Pairs of panels [begin, end) of a product.
  void multiply(const Product& product, std::int64_t begin, std::int64_t end, int worker);

  const KernelSet& kernels_;
  ThreadPool& pool_;
  Buffer scratch_;
  ActivationStore activations_;
  RowGroups groups_;
};

}  // namespace dllm::cpu
