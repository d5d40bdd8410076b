#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "npu_backend/accuracy/vector_unit.h"
#include "npu_core/device/smoothing.h"

namespace dllm::npu::accuracy {

/// Centres and factors of the channels of one KV head. Without smoothing: centres 0, factors 1.
struct ChannelFactors {
  std::vector<float> centre, factor, inverse;  ///< rounded to the vector's precision; inverse of factor
};

/// `rows`: the head's channels at the positions of which the statistics are taken; at least one.
/// One rounding per operation, as on the vector unit, where powers are roots; a channel that varies by less than
/// 1 / smoothing_scale() has factor 1.
ChannelFactors channel_factors(SmoothingCentre centre, const Smoothing& smoothing, VectorPrecision precision,
                               std::span<const float* const> rows, std::int64_t channels);

/// (x - c) / f per channel, in place, as two vector operations.
void smooth(const ChannelFactors& factors, VectorPrecision precision, std::span<float> channels);

}  // namespace dllm::npu::accuracy
