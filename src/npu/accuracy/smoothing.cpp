#include "npu/accuracy/smoothing.h"

#include <algorithm>
#include <cmath>

namespace dllm::npu::accuracy {

std::string_view smoothing_centre_name(SmoothingCentre centre) {
  switch (centre) {
    case SmoothingCentre::kNone:
      return "none";
    case SmoothingCentre::kMean:
      return "mean";
    case SmoothingCentre::kMinMax:
      return "minmax";
  }
  return "";
}

ChannelFactors channel_factors(SmoothingCentre centre, double alpha, VectorPrecision precision,
                               std::span<const float* const> rows, std::int64_t channels) {
  const auto count = static_cast<std::size_t>(channels);
  ChannelFactors result{std::vector<float>(count, 0.0f), std::vector<float>(count, 1.0f),
                        std::vector<float>(count, 1.0f)};
  if (centre == SmoothingCentre::kNone) return result;
  for (std::size_t d = 0; d < count; ++d) {
    double sum = 0, least = static_cast<double>(rows[0][d]), most = least;
    for (const float* row : rows) {
      const auto x = static_cast<double>(row[d]);
      sum += x;
      least = std::min(least, x);
      most = std::max(most, x);
    }
    const double middle =
        centre == SmoothingCentre::kMean ? sum / static_cast<double>(rows.size()) : (most + least) / 2;
    result.centre[d] = round_to(precision, middle);
    const auto c = static_cast<double>(result.centre[d]);
    const double reach = std::max(most - c, c - least);
    // A constant channel equals its centre: any factor will do.
    const float factor = round_to(precision, std::pow(reach, alpha));
    if (!(reach > 0) || !std::isfinite(factor) || factor == 0.0f) continue;
    const float inverse = vector_reciprocal(precision, factor);
    if (!std::isfinite(inverse) || inverse == 0.0f) continue;
    result.factor[d] = factor;
    result.inverse[d] = inverse;
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
