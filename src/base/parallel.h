#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <new>

#include "base/integers.h"
#include "base/thread_pool.h"

namespace dllm {

/// parallel_for without the allocation of a std::function (only a reference to `body` is wrapped). If a task runs out
/// of memory, this throws std::bad_alloc instead of ending the process in the worker.
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

/// Calls body(begin, end, worker) over [0, items) in pieces of `grain`, the last one shorter; piece i starts at i *
/// grain.
template <class Body>
void parallel_pieces(ThreadPool& pool, std::int64_t items, std::int64_t grain, const Body& body) {
  parallel(pool, ceil_div(items, grain), [&](std::int64_t piece, int worker) {
    const std::int64_t end = (piece + 1) * grain;
    body(piece * grain, end < items ? end : items, worker);
  });
}

/// Calls body(item, worker) for all items, in runs that are worth a task: `cost` is the work of one item in elements
/// touched. Below some 16 k elements (a few microseconds) waking a thread costs more than it gains.
template <class Body>
void parallel_items(ThreadPool& pool, std::int64_t items, std::int64_t cost, const Body& body) {
  const std::int64_t run = std::int64_t{16384} / (cost > 0 ? cost : 1) + 1;
  parallel_pieces(pool, items, run, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t i = begin; i < end; ++i) body(i, worker);
  });
}

/// ThreadPool::parallel_ranges without the allocation of a std::function.
template <class Body>
void parallel_ranges(ThreadPool& pool, std::int64_t items, std::int64_t grain, const Body& body) {
  pool.parallel_ranges(items, grain, std::cref(body));
}

}  // namespace dllm
