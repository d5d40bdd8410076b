#include "cpu/peak.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <system_error>

#include "base/thread_pool.h"
#include "cpu/page_memory.h"

namespace dllm::cpu {
namespace {

constexpr std::size_t kReadBytes = std::size_t{256} << 20;  // eight times a large L3
constexpr double kWarmUpSeconds = 0.02, kRunSeconds = 0.01;
constexpr int kRuns = 5;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <class Body>
double seconds_of(Body body) {
  const double start = now();
  body();
  return now() - start;
}

double best_rate(ThreadPool& pool, const PeakLoop& loop) {
  const auto run = [&](std::int64_t rounds) {
    return seconds_of([&] { pool.parallel_for(pool.size(), [&](std::int64_t, int) { loop.run(rounds); }); });
  };
  // The warm-up raises clocks and determines how many rounds take kRunSeconds.
  std::int64_t rounds = 1000;
  double elapsed = run(rounds);
  for (double spent = elapsed; spent < kWarmUpSeconds; spent += elapsed) elapsed = run(rounds *= 2);
  rounds = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(rounds) * kRunSeconds / elapsed));
  double best = run(rounds);
  for (int i = 1; i < kRuns; ++i) best = std::min(best, run(rounds));
  return static_cast<double>(rounds) * loop.ops_per_round * pool.size() / best;
}

double best_read(ThreadPool& pool, const std::byte* data) {
  // The remainder of an uneven split is neither read nor counted.
  const std::size_t share = kReadBytes / static_cast<std::size_t>(pool.size()) / 4096 * 4096;
  double best = std::numeric_limits<double>::max();
  for (int run = 0; run < kRuns; ++run)
    for (const int streams : kPeakStreams)
      best = std::min(best, seconds_of([&] {
                        pool.parallel_for(pool.size(), [&](std::int64_t part, int) {
                          peak_read(data + static_cast<std::size_t>(part) * share, share, streams);
                        });
                      }));
  return static_cast<double>(share) * pool.size() / best;
}

Peaks::Rate Peaks::* rate_of(PeakKind kind) {
  switch (kind) {
    case PeakKind::kInt8:
      return &Peaks::int8;
    case PeakKind::kBf16:
      return &Peaks::bf16;
    case PeakKind::kF32:
      break;
    case PeakKind::kInt8Tiles:
      return &Peaks::int8_tiles;
    case PeakKind::kBf16Tiles:
      return &Peaks::bf16_tiles;
  }
  return &Peaks::f32;
}

Expected<Peaks> measure(int threads) {
  ThreadPool pool(threads);
  Peaks peaks;
  peaks.threads = threads;
  PeakLoop loops[kMaxPeakLoops];
  const int count = list_peak_loops(loops);
  for (const PeakLoop& loop : std::span(loops).first(static_cast<std::size_t>(count))) {
    Peaks::Rate& rate = peaks.*rate_of(loop.kind);
    const double found = best_rate(pool, loop);
    if (found > rate.per_second) rate = {found, loop.name};
  }
  const PageMemory data(kReadBytes);  // of large pages: with small ones this might measure TLB misses
  // Written, so that pages are distinct memory; by the threads, so that each page is near one of them.
  const std::size_t page = std::size_t{2} << 20;
  pool.parallel_for(static_cast<std::int64_t>(kReadBytes / page), [&](std::int64_t i, int) {
    std::memset(data.data() + static_cast<std::size_t>(i) * page, 1, page);
  });
  peaks.read_bytes_per_second = best_read(pool, data.data());
  return peaks;
}

}  // namespace

void raise(Peaks& peaks, const Peaks& again) {
  for (Peaks::Rate Peaks::* rate :
       {&Peaks::int8, &Peaks::bf16, &Peaks::f32, &Peaks::int8_tiles, &Peaks::bf16_tiles, &Peaks::f16})
    if ((again.*rate).per_second > (peaks.*rate).per_second) peaks.*rate = again.*rate;
  peaks.read_bytes_per_second = std::max(peaks.read_bytes_per_second, again.read_bytes_per_second);
}

Expected<Peaks> measure_peaks(int threads) {
  try {
    return measure(threads);
  } catch (const std::system_error& error) {
    return Error{ErrorCode::kResource, std::string("cannot start threads: ") + error.what(), "", "ask for fewer"};
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResource, "no memory for measuring the bandwidth", "", "256 MiB are needed"};
  }
}

}  // namespace dllm::cpu
