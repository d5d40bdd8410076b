#pragma once

#include "npu_compiler/compiler/context.h"

namespace dllm::npu {

/// Rows of VRAM by slab of the smoothed value.
struct ChannelRows {
  Buffer centre, factor, inverse;
};

/// Centres, factors and their inverses of the channels of `count` rows, as accuracy::channel_factors() defines them.
/// Lanes without a column, which are zeros, get 0, 1 and 1. Errors: kUsage (no room).
Expected<void> channel_statistics(StepContext& c, SmoothingCentre centre, const ValuePlace& x, std::int64_t count,
                                  const ChannelRows& out);

}  // namespace dllm::npu
