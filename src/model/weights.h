#pragma once

#include <span>
#include <vector>

#include "format/tensor_info.h"

namespace dllm {

/// A weight's bytes, owned by the model's file or by the model. Absent optional weights have no data.
struct WeightView {
  TensorType type = TensorType::kF32;
  Shape shape;
  std::span<const std::byte> data;
  /// `data` is part of a mapped read-only file: its pages may be dropped from memory and are read again on access.
  bool mapped = false;
  /// Of a stack of matrices: bytes from one to the next; 0: they follow each other.
  std::size_t matrix_bytes = 0;

  bool present() const { return !data.empty(); }
};

/// By WeightId of the architecture's graph (ids do not depend on the step shape).
using Weights = std::vector<WeightView>;

}  // namespace dllm
