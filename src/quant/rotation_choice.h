#pragma once

#include <functional>
#include <vector>

#include "dllm/error.h"
#include "model/source.h"
#include "quant/rotator.h"

namespace dllm {

/// Chooses the parts of a model whose rotation lets its weights be rounded with less error, and gives the rotator that
/// plan; its residual matrix must exist. First the residual stream as a whole, by the sum over the matrices that read
/// or write it, then the heads of each layer, by the matrices before and after the values. The error of a matrix is
/// |W - Q(W)|^2 / |W|^2, rounded to nearest in its type of `types` (one per tensor of the source); matrices that are
/// not quantized have none, and weights do not know about outliers of activations. PLENA searches greedily per product
/// (its rotations run online, where each product can have its own; folded ones share the residual stream's).
/// Errors: kCancelled; those of rotating and encoding.
Expected<void> choose_rotation(const ModelSource& source, const std::vector<TensorType>& types, int threads,
                               const std::function<bool()>& cancelled, Rotator& rotator);

}  // namespace dllm
