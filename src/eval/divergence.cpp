#include "eval/divergence.h"

#include <algorithm>
#include <cmath>

namespace dllm {
namespace {

/// log of the sum of e^z.
double log_sum(std::span<const float> logits) {
  const auto top = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (const float z : logits) sum += std::exp(static_cast<double>(z) - top);
  return top + std::log(sum);
}

std::int64_t arg_max(std::span<const float> logits) { return std::ranges::max_element(logits) - logits.begin(); }

}  // namespace

void Divergence::add(std::span<const float> base, std::span<const float> other, std::int32_t target) {
  const double base_log = log_sum(base), other_log = log_sum(other);
  double kl = 0;
  for (std::size_t i = 0; i < base.size(); ++i) {
    const double p = static_cast<double>(base[i]) - base_log, q = static_cast<double>(other[i]) - other_log;
    kl += std::exp(p) * (p - q);
  }
  const std::int64_t best = arg_max(other);
  const double confidence = std::exp(static_cast<double>(other[static_cast<std::size_t>(best)]) - other_log);
  const bool right = best == target;
  rows_ += 1;
  kl_ += kl;
  kl_squares_ += kl * kl;
  nll_ += other_log - static_cast<double>(other[static_cast<std::size_t>(target)]);
  agree_ += best == arg_max(base) ? 1 : 0;
  right_ += right ? 1 : 0;
  confidence_ += confidence;
  Bin& bin = bins_[std::min(9, static_cast<int>(10 * confidence))];
  bin.confidence += confidence;
  bin.right += right ? 1 : 0;
}

double Divergence::kl_error() const {
  if (rows_ < 2) return 0;
  const double variance = std::max(0.0, kl_squares_ / static_cast<double>(rows_) - kl() * kl());
  return std::sqrt(variance / static_cast<double>(rows_ - 1));
}

double Divergence::calibration_error() const {
  double sum = 0;
  for (const Bin& bin : bins_) sum += std::fabs(bin.confidence - bin.right);
  return mean(sum);
}

}  // namespace dllm
