#define DLLM_ISA avx512

#include "cpu/kernels/simd_avx512.h"
// the policy must precede the kernels based on it
#include "cpu/kernels/kernels-inl.h"
