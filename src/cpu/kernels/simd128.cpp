#define DLLM_ISA simd128

#include "cpu/kernels/simd_wasm.h"
// the policy must precede the kernels based on it
#include "cpu/kernels/kernels-inl.h"
