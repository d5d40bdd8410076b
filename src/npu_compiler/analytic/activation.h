#pragma once

#include <cstdint>

#include "graph/graph.h"
#include "npu_core/machine/arithmetic.h"

namespace dllm::npu {

// Activations from the vector unit's e^x and reciprocal. All are x sigmoid(g(x)) with
//
//   SiLU        g = x
//   GELU, tanh  g = x (kTanhForm0 + kTanhForm1 x^2), exactly: x/2 (1 + tanh u) = x sigmoid(2u)
//   GELU        g = x (kErfForm0 + kErfForm1 t + kErfForm2 t^2), t = min(x^2, kErfFormMost): log(Phi(x) / Phi(-x)) of
//               the normal distribution; least absolute error of GELU, 2.5e-5, a tenth of a rounding to FP16
//
// except tanh = 2 sigmoid(2x) - 1 and ReLU, a maximum. Constants are rounded to the lanes' format.

inline constexpr float kTanhForm0 = 1.5957691216f, kTanhForm1 = 0.0713548163f;  // 2 sqrt(2/pi), and times 0.044715
inline constexpr float kErfForm0 = 1.5950151675f, kErfForm1 = 0.0740119951f, kErfForm2 = -0.0007031862f,
                       kErfFormMost = 16.0f;

/// Vector instructions per slab.
constexpr int activation_instructions(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return 5;
    case Activation::kGeluTanh:
      return 9;
    case Activation::kGelu:
      return 12;
    case Activation::kTanh:
      return 6;
    case Activation::kRelu:
      return 1;
  }
  return 0;
}

}  // namespace dllm::npu
