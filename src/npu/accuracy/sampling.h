#pragma once

#include <cstdint>
#include <span>

#include "backend/scores.h"
#include "npu/accuracy/numerics_profile.h"

namespace dllm::npu::accuracy {

/// What sampling reads: `logits`, one row, in the profile's format.
void store_logits(const NumericsProfile& profile, std::span<float> logits);

/// Replaces the confidence of a row whose token is the arg-max, and the log-odds, by those of the profile's precision.
/// kF64 leaves them as they are. `vlen`: lanes of a slab of the one-pass reduction (HeadMode::kReduced).
void reduce_confidence(SamplingPrecision precision, std::span<const float> logits, std::size_t vlen, RowScore& score);

}  // namespace dllm::npu::accuracy
