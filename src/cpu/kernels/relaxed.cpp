#define DLLM_ISA relaxed
#define DLLM_RELAXED_SIMD

#include "cpu/kernels/simd_wasm.h"
// the policy must precede the kernels based on it
#include "cpu/kernels/kernels-inl.h"

namespace dllm::cpu {

const KernelSet* relaxed_set();
bool runs_relaxed();

namespace {

float relaxed_fma(float a, float b, float c) {
  return wasm_f32x4_extract_lane(wasm_f32x4_relaxed_madd(wasm_f32x4_splat(a), wasm_f32x4_splat(b), wasm_f32x4_splat(c)),
                                 0);
}
double relaxed_fma(double a, double b, double c) {
  return wasm_f64x2_extract_lane(wasm_f64x2_relaxed_madd(wasm_f64x2_splat(a), wasm_f64x2_splat(b), wasm_f64x2_splat(c)),
                                 0);
}

}  // namespace

const KernelSet* relaxed_set() { return &relaxed::kKernels; }

// The specification lets a browser round the product or not, but always the same way.
bool runs_relaxed() {
  const FmaF32 narrow = &relaxed_fma;
  const FmaF64 wide = &relaxed_fma;
  return choose_fma(narrow) == narrow && choose_fma(wide) == wide;
}

}  // namespace dllm::cpu
