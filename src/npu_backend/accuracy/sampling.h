#pragma once

#include <cstdint>
#include <span>

#include "backend/scores.h"
#include "backend/step_plan.h"
#include "npu_backend/accuracy/numerics_profile.h"

namespace dllm::npu::accuracy {

/// The input of sampling: `logits`, one row, in the profile's format.
void store_logits(const NumericsProfile& profile, std::span<float> logits);

/// If a row's token is the arg-max, replaces its confidence and log-odds by those of the profile's precision. kF64
/// leaves them unchanged. `vlen`: lanes of a slab of the one-pass reduction (HeadMode::kReduced).
void reduce_confidence(SamplingPrecision precision, std::span<const float> logits, std::size_t vlen, RowScore& score);

/// Whether reduce_draw() supports a request: it draws, from all tokens. Draws that top_k, top_p or min_p restrict, that
/// adjustments change, or whose rules leave tokens out of the softmax keep the host's float64.
bool draws_on_device(SamplingPrecision precision, const ScoreRequest& request);

/// Replaces a row's token by the one that V_RED_DRAW draws in the profile's precision (docs/guide/isa.md), with the
/// same noise as every backend; and its confidence by that of the sampling program with chunks of `vlen` logits. Rules
/// may forbid tokens. Precondition: draws_on_device().
void reduce_draw(SamplingPrecision precision, std::span<const float> logits, std::size_t vlen,
                 const ScoreRequest& request, RowScore& score);

}  // namespace dllm::npu::accuracy
