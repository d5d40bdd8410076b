#pragma once

#include <array>
#include <cstdint>

#include "npu_core/dram/standard.h"

namespace dllm::npu::dram {

/// How the column-command time of a pseudo-channel was spent. The parts sum exactly to the elapsed time.
struct TimeBreakdown {
  Tick data = 0;        ///< bursts
  Tick refresh = 0;     ///< draining for, executing and recovering from a refresh
  Tick turnaround = 0;  ///< read to write and back
  Tick row = 0;         ///< precharge and activation that could not be hidden
  Tick column = 0;      ///< same-group spacing, shared command bus
  Tick mode = 0;        ///< requests of the other direction held back by write draining
  Tick idle = 0;        ///< nothing queued

  Tick total() const { return data + refresh + turnaround + row + column + mode + idle; }
};

/// Counters of one pseudo-channel.
struct PseudochannelStats {
  std::uint64_t reads = 0, writes = 0;  ///< bursts
  std::uint64_t row_hits = 0, row_misses = 0, row_conflicts = 0;
  std::uint64_t activates = 0, precharges = 0;
  std::uint64_t refreshes_all = 0, refreshes_bank = 0;
  TimeBreakdown time;
};

/// Latencies in ticks: four buckets per octave, so a percentile is exact within 19 %.
class LatencyHistogram {
 public:
  static constexpr int kBuckets = 128;
  void add(Tick latency);
  void merge(const LatencyHistogram& other);
  std::uint64_t count() const { return count_; }
  double mean() const { return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_); }
  Tick minimum() const { return count_ == 0 ? 0 : minimum_; }
  Tick maximum() const { return maximum_; }
  /// Upper edge of the bucket that holds the quantile `q` in [0, 1].
  Tick quantile(double q) const;
  const std::array<std::uint64_t, kBuckets>& buckets() const { return buckets_; }
  static Tick upper_edge(int bucket);

 private:
  std::array<std::uint64_t, kBuckets> buckets_{};
  std::uint64_t count_ = 0;
  std::int64_t sum_ = 0;
  Tick minimum_ = INT64_MAX, maximum_ = 0;
};

}  // namespace dllm::npu::dram
