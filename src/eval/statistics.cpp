#include "eval/statistics.h"

#include <algorithm>
#include <cmath>

namespace dllm {
namespace {

/// Newcombe's phi: the correlation of the two results, with a continuity correction if it is positive.
double correlation(double a, double b, double c, double d) {
  const double product = (a + b) * (c + d) * (a + c) * (b + d);
  if (product == 0) return 0;
  const double cross = a * d - b * c;
  return (cross > 0 ? std::max(cross - (a + b + c + d) / 2, 0.0) : cross) / std::sqrt(product);
}

double binomial_two_sided(std::int64_t k, std::int64_t n) {
  // P(X <= min(k, n-k)) twice, in logarithms, because n may be thousands.
  const std::int64_t low = std::min(k, n - k);
  const auto log_factorial = [](std::int64_t x) { return std::lgamma(static_cast<double>(x) + 1); };
  double tail = 0;
  for (std::int64_t i = 0; i <= low; ++i)
    tail +=
        std::exp(log_factorial(n) - log_factorial(i) - log_factorial(n - i) - static_cast<double>(n) * std::log(2.0));
  return std::min(1.0, 2 * tail);
}

}  // namespace

Interval wilson_interval(std::int64_t successes, std::int64_t trials, double z) {
  if (trials <= 0) return {0, 1};
  const double n = static_cast<double>(trials), p = static_cast<double>(successes) / n, z2 = z * z;
  const double centre = (p + z2 / (2 * n)) / (1 + z2 / n);
  const double half = z / (1 + z2 / n) * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return {successes == 0 ? 0 : centre - half, successes == trials ? 1 : centre + half};
}

PairedDifference paired_difference(const PairedCounts& counts, double z) {
  const std::int64_t n = counts.total();
  if (n == 0) return {0, {-1, 1}, 1};
  // Newcombe computes first minus second; we want the gain of the second, so the two are exchanged.
  const std::int64_t second = counts.both + counts.second_only, first = counts.both + counts.first_only;
  const double p1 = static_cast<double>(second) / static_cast<double>(n);
  const double p2 = static_cast<double>(first) / static_cast<double>(n);
  const Interval w1 = wilson_interval(second, n, z), w2 = wilson_interval(first, n, z);
  const double phi = correlation(static_cast<double>(counts.both), static_cast<double>(counts.second_only),
                                 static_cast<double>(counts.first_only), static_cast<double>(counts.neither));
  const auto spread = [&](double a, double b) { return std::sqrt(std::max(0.0, a * a - 2 * phi * a * b + b * b)); };
  PairedDifference result;
  result.difference = p1 - p2;
  result.interval = {result.difference - spread(p1 - w1.low, w2.high - p2),
                     result.difference + spread(w1.high - p1, p2 - w2.low)};
  const std::int64_t discordant = counts.first_only + counts.second_only;
  if (discordant > 0) result.p_value = binomial_two_sided(counts.first_only, discordant);
  return result;
}

}  // namespace dllm
