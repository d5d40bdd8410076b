#pragma once

#include <cstdint>

namespace dllm {

struct Interval {
  double low = 0, high = 0;
};

/// 97.5 % quantile of the normal distribution: two-sided intervals of 95 %.
constexpr double kNormal95 = 1.959963984540054;

/// Wilson's score interval of a proportion (Wilson 1927): unlike the usual p +- z s it does not collapse at 0 and 1.
/// {0, 1} without trials.
Interval wilson_interval(std::int64_t successes, std::int64_t trials, double z = kNormal95);

/// Two yes-or-no results on the same items.
struct PairedCounts {
  std::int64_t both = 0, first_only = 0, second_only = 0, neither = 0;
  std::int64_t total() const { return both + first_only + second_only + neither; }
};

struct PairedDifference {
  double difference = 0;  ///< second minus first, as proportions
  Interval interval;      ///< Newcombe's hybrid score interval, method 10 (Stat. Med. 17, 1998, 2635)
  double p_value = 1;     ///< two-sided exact McNemar test: whether the discordant items fit a fair coin
};

PairedDifference paired_difference(const PairedCounts& counts, double z = kNormal95);

}  // namespace dllm
