// The machine's own limits, in the same run as the kernels that are compared with them: each loop of
// src/cpu/kernels/peak.cpp on every thread, and reads of 256 MiB of memory, in small and in huge
// pages.
//
//   dllm_bench_kernels --benchmark_filter='peak|linear/avx512/Q4_0'

#include <benchmark/benchmark.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "base/thread_pool.h"
#include "cpu/kernels/peak.h"

namespace dllm::cpu {

int bench_threads();  // bench_kernels.cpp

namespace {

void instructions(benchmark::State& state, const PeakLoop& loop) {
  ThreadPool pool(bench_threads());
  constexpr std::int64_t kRounds = 100000;
  for (auto _ : state) pool.parallel_for(pool.size(), [&](std::int64_t, int) { loop.run(kRounds); });
  state.SetItemsProcessed(state.iterations() * pool.size() * kRounds * static_cast<std::int64_t>(loop.ops_per_round));
}

void reads(benchmark::State& state, int streams, bool huge_pages) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  ThreadPool pool(bench_threads());
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(std::size_t{2} << 20, kBytes)), &std::free);
  if (!memory) return state.SkipWithError("no memory");
#if defined(__linux__)
  if (huge_pages) madvise(memory.get(), kBytes, MADV_HUGEPAGE);
#endif
  std::memset(memory.get(), 1, kBytes);
  const std::size_t share = kBytes / static_cast<std::size_t>(pool.size()) / 4096 * 4096;
  for (auto _ : state)
    pool.parallel_for(pool.size(), [&](std::int64_t part, int) {
      peak_read(memory.get() + static_cast<std::size_t>(part) * share, share, streams);
    });
  state.SetBytesProcessed(state.iterations() * pool.size() * static_cast<std::int64_t>(share));
}

}  // namespace

void register_peaks() {
  PeakLoop loops[kMaxPeakLoops];
  const int count = list_peak_loops(loops);
  for (const PeakLoop& loop : std::span(loops).first(static_cast<std::size_t>(count)))
    benchmark::RegisterBenchmark(("peak/" + std::string(loop.name)).c_str(), [loop](benchmark::State& state) {
      instructions(state, loop);
    })->UseRealTime();
  for (const bool huge_pages : {false, true})
    for (const int streams : kPeakStreams)
      benchmark::RegisterBenchmark(("peak/read/" + std::string(huge_pages ? "huge_pages" : "small_pages") +
                                    "/streams:" + std::to_string(streams))
                                       .c_str(),
                                   [=](benchmark::State& state) { reads(state, streams, huge_pages); })
          ->UseRealTime();
}

}  // namespace dllm::cpu
