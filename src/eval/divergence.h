#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace dllm {

/// How the predictions of a model differ from those of a base, row by row over the same vocabulary.
class Divergence {
 public:
  /// The logits of one row; `target`: the right token.
  void add(std::span<const float> base, std::span<const float> other, std::int32_t target);

  std::int64_t rows() const { return rows_; }
  /// Mean over the rows of sum p log(p / q), in nats; p: the base's distribution.
  double kl() const { return mean(kl_); }
  /// Standard error of kl().
  double kl_error() const;
  /// Share of rows with the base's most probable token (the lowest of equal ones).
  double top1_agreement() const { return mean(static_cast<double>(agree_)); }
  /// Of the right token under the other model, nats.
  double negative_log_likelihood() const { return mean(nll_); }
  /// Share of rows whose most probable token is right, and the mean probability that the model gives it.
  double accuracy() const { return mean(static_cast<double>(right_)); }
  double confidence() const { return mean(confidence_); }
  /// Expected calibration error (Guo et al., arXiv 1706.04599): mean difference of confidence and accuracy in ten bins
  /// of confidence, weighted by their rows.
  double calibration_error() const;

 private:
  struct Bin {
    double confidence = 0, right = 0;
  };
  double mean(double sum) const { return rows_ > 0 ? sum / static_cast<double>(rows_) : 0; }

  std::int64_t rows_ = 0, agree_ = 0, right_ = 0;
  double kl_ = 0, kl_squares_ = 0, nll_ = 0, confidence_ = 0;
  Bin bins_[10];
};

}  // namespace dllm
