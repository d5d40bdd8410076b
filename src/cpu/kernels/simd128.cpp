#define DLLM_ISA simd128

#include "cpu/kernels/simd_wasm.h"
// the policy must precede the kernels based on it
#include "cpu/kernels/kernels-inl.h"

namespace dllm::cpu {

bool runs_simd128();

namespace {

/// Every lane, as each half of a vector has its own instructions.
float emulated_fma(float a, float b, float c) {
  float lanes[16];
  simd128::store(lanes, simd128::fma(simd128::set1(a), simd128::set1(b), simd128::set1(c)));
  for (const float lane : lanes)
    if (lane != lanes[0] && lane == lane) return -lanes[0] - 1;
  return lanes[0];
}

}  // namespace

// Random numbers hardly ever meet the cases that fma() computes again, so they are asked for at the start.
bool runs_simd128() {
  const FmaF32 narrow = &emulated_fma;
  // The sum lies just below the middle of two subnormal floats, and its double in the middle.
  const float a = 0x1.000002p-75f, b = 0x1.fffffcp-76f, c = 0x1.000004p-127f;
  return choose_fma(narrow) == narrow && emulated_fma(a, b, c) == exact_fma(a, b, c);
}

}  // namespace dllm::cpu
