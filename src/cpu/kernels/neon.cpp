#define DLLM_ISA neon

#include "cpu/kernels/simd_neon.h"
// the policy must precede the kernels based on it
#include "cpu/kernels/kernels-inl.h"
