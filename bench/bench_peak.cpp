// The machine's own limits, in the same run as the kernels that are held against them: each loop of
// src/cpu/kernels/peak.cpp on every thread, and reads of 256 MiB of memory.
//
//   dllm_bench_kernels --benchmark_filter='peak|linear/avx512/Q4_0'

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

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

void reads(benchmark::State& state) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  ThreadPool pool(bench_threads());
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const std::vector<Line> memory(kBytes / sizeof(Line), Line{});
  const std::size_t share = kBytes / static_cast<std::size_t>(pool.size()) / 4096 * 4096;
  for (auto _ : state)
    pool.parallel_for(pool.size(), [&](std::int64_t part, int) {
      peak_read(memory.front().bytes + static_cast<std::size_t>(part) * share, share);
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
  benchmark::RegisterBenchmark("peak/read", reads)->UseRealTime();
}

}  // namespace dllm::cpu
