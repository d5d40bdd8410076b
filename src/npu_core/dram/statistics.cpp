#include "npu_core/dram/statistics.h"

#include <algorithm>
#include <bit>

#include "base/to_size.h"

namespace dllm::npu::dram {
namespace {

/// Values below 4 have a bucket each; above, the top three bits select it.
int bucket_of(Tick latency) {
  const auto value = static_cast<std::uint64_t>(std::max<Tick>(latency, 0));
  if (value < 4) return static_cast<int>(value);
  const int octave = static_cast<int>(std::bit_width(value)) - 3;
  return std::min(octave * 4 + static_cast<int>(value >> octave), LatencyHistogram::kBuckets - 1);
}

}  // namespace

void LatencyHistogram::add(Tick latency) {
  ++buckets_[to_size(bucket_of(latency))];
  ++count_;
  sum_ += latency;
  minimum_ = std::min(minimum_, latency);
  maximum_ = std::max(maximum_, latency);
}

void LatencyHistogram::merge(const LatencyHistogram& other) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  minimum_ = std::min(minimum_, other.minimum_);
  maximum_ = std::max(maximum_, other.maximum_);
}

Tick LatencyHistogram::upper_edge(int bucket) {
  if (bucket < 4) return bucket;
  const int octave = (bucket - 4) / 4;
  return (Tick{bucket - octave * 4 + 1} << octave) - 1;
}

Tick LatencyHistogram::quantile(double q) const {
  const auto rank = static_cast<std::uint64_t>(q * static_cast<double>(count_));
  std::uint64_t seen = 0;
  for (int i = 0; i < kBuckets; ++i) {
    seen += buckets_[to_size(i)];
    if (seen > rank || (seen == count_ && count_ > 0)) return std::min(upper_edge(i), maximum_);
  }
  return 0;
}

}  // namespace dllm::npu::dram
