#pragma once

#include "npu_compiler/compiler/context.h"

// Smoothing of K and V (device/smoothing.h): a step that takes statistics computes the centres and factors of a
// sequence and keeps them in its cache; later steps read them. K and V are smoothed before they are stored, queries are
// multiplied by the factors of K, and outputs get those of V and its centres.

namespace dllm::npu {

/// Smooths the rows of K and V and stores them. Their factors are in StepContext::kv_factors until the next layer.
Expected<void> store_smoothed(StepContext& c, const op::StoreKv& o);
/// Rows of ones in matrix SRAM, with which the array adds up quantized probabilities. Errors: no room.
Expected<void> load_ones(StepContext& c);
/// queries <- queries times the factors of K.
void scale_queries(StepContext& c, const op::Attention& o);

}  // namespace dllm::npu
