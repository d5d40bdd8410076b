#pragma once

#include <cstdint>
#include <span>

#include "backend/scores.h"
#include "npu/accuracy/numerics_profile.h"

namespace dllm::npu::accuracy {

/// The input of sampling: `logits`, one row, in the profile's format.
void store_logits(const NumericsProfile& profile, std::span<float> logits);

/// If a row's token is the arg-max, replaces its confidence and log-odds by those of the profile's precision. kF64
/// leaves them unchanged. `vlen`: lanes of a slab of the one-pass reduction (HeadMode::kReduced).
void reduce_confidence(SamplingPrecision precision, std::span<const float> logits, std::size_t vlen, RowScore& score);

}  // namespace dllm::npu::accuracy
