#include "npu_backend/accuracy/smoothing.h"

#include <algorithm>
#include <cmath>

#include "npu_core/machine/arithmetic.h"

namespace dllm::npu::accuracy {
namespace {

LaneFormat lanes_of(VectorPrecision precision) {
  return precision == VectorPrecision::kF16 ? LaneFormat::kF16 : LaneFormat::kBf16;
}

/// The statistics of one channel, one rounding per operation, in the order of compiler/smoothing.cpp.
class Channel {
 public:
  Channel(VectorPrecision precision, std::span<const float* const> rows, std::size_t channel)
      : precision_(precision), rows_(rows), channel_(channel) {
    for (const float* row : rows) {
      most_ = vector_max(most_, row[channel]);
      least_ = -vector_max(-least_, -row[channel]);
    }
  }

  float centre(SmoothingCentre kind) const {
    if (kind == SmoothingCentre::kMinMax) return round(round(0.5f * most_) + round(0.5f * least_));
    const auto n = static_cast<std::int64_t>(rows_.size());
    const float shrink = mean_shrink(lanes_of(precision_), n);
    std::int64_t run = 1;
    while (run * kMeanRun < n) run *= kMeanRun;
    return round(sum(0, n, run, shrink) * round(1.0f / (shrink * static_cast<float>(n))));
  }
  float reach(float centre) const { return vector_max(round(most_ - centre), round(centre - least_)); }

 private:
  float round(float x) const { return round_to(precision_, x); }

  /// Runs of `run` rows are summed first, in runs of their own.
  float sum(std::int64_t first, std::int64_t count, std::int64_t run, float shrink) const {
    float total = 0;
    for (std::int64_t at = first; at < first + count; at += run) {
      const float part = run == 1 ? round(rows_[static_cast<std::size_t>(at)][channel_] * shrink)
                                  : sum(at, std::min(run, first + count - at), run / kMeanRun, shrink);
      total = round(total + part);
    }
    return total;
  }

  VectorPrecision precision_;
  std::span<const float* const> rows_;
  std::size_t channel_;
  float most_ = rows_.front()[channel_], least_ = most_;
};

float power_of(VectorPrecision precision, float reach, const Smoothing& smoothing) {
  if (!smoothing.by_roots()) return round_to(precision, std::pow(static_cast<double>(reach), smoothing.alpha));
  const float root = vector_sqrt(precision, reach), fourth = vector_sqrt(precision, root);
  switch (static_cast<int>(4 * smoothing.alpha)) {
    case 0:
      return 1.0f;
    case 1:
      return fourth;
    case 2:
      return root;
    case 3:
      return round_to(precision, root * fourth);
    default:
      return reach;
  }
}

}  // namespace

ChannelFactors channel_factors(SmoothingCentre centre, const Smoothing& smoothing, VectorPrecision precision,
                               std::span<const float* const> rows, std::int64_t channels) {
  const auto count = static_cast<std::size_t>(channels);
  ChannelFactors result{std::vector<float>(count, 0.0f), std::vector<float>(count, 1.0f),
                        std::vector<float>(count, 1.0f)};
  if (centre == SmoothingCentre::kNone) return result;
  const auto round = [&](float x) { return round_to(precision, x); };
  const float large = smoothing_scale(lanes_of(precision));
  for (std::size_t d = 0; d < count; ++d) {
    const Channel channel(precision, rows, d);
    result.centre[d] = channel.centre(centre);
    const float reach = channel.reach(result.centre[d]);
    const float beyond = vector_max(round(round(reach * large) - 1.0f), 0.0f);
    const float varies = std::min(round(beyond * large), 1.0f);
    result.factor[d] = round(round(power_of(precision, reach, smoothing) * varies) + round(1.0f - varies));
    result.inverse[d] = vector_reciprocal(precision, result.factor[d]);
  }
  return result;
}

void smooth(const ChannelFactors& factors, VectorPrecision precision, std::span<float> channels) {
  for (std::size_t d = 0; d < channels.size(); ++d) {
    const float centred = round_to(precision, channels[d] - factors.centre[d]);
    channels[d] = round_to(precision, centred * factors.inverse[d]);
  }
}

}  // namespace dllm::npu::accuracy
