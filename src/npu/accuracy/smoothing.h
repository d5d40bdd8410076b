#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "npu/accuracy/vector_unit.h"

namespace dllm::npu::accuracy {

/// Block-adaptive online smoothing of K and V (DART, Eq. 8 and 9): a cache stores (x - c) / f per channel, with the
/// channel's centre c and factor f from the step that filled the cache. Outliers that remain in their channels then no
/// longer determine the scale of the blocks that they share with others.
enum class SmoothingCentre : std::uint8_t {
  kNone,    ///< no smoothing
  kMean,    ///< the mean over the positions
  kMinMax,  ///< (largest + smallest) / 2
};
std::string_view smoothing_centre_name(SmoothingCentre centre);  ///< "none", "mean", "minmax"

struct Smoothing {
  SmoothingCentre keys = SmoothingCentre::kNone, values = SmoothingCentre::kNone;
  /// f = (largest distance from the centre)^alpha; 0 only subtracts the centre, 1 scales every channel to [-1, 1].
  double alpha = 1;

  bool any() const { return keys != SmoothingCentre::kNone || values != SmoothingCentre::kNone; }
  friend bool operator==(const Smoothing&, const Smoothing&) = default;
};

/// Centres and factors of the channels of one KV head. Without smoothing: centres 0, factors 1.
struct ChannelFactors {
  std::vector<float> centre, factor, inverse;  ///< rounded to the vector's precision; inverse of factor
};

/// `rows`: the head's channels at the positions of which the statistics are taken; at least one.
ChannelFactors channel_factors(SmoothingCentre centre, double alpha, VectorPrecision precision,
                               std::span<const float* const> rows, std::int64_t channels);

/// (x - c) / f per channel, in place, as two vector operations.
void smooth(const ChannelFactors& factors, VectorPrecision precision, std::span<float> channels);

}  // namespace dllm::npu::accuracy
