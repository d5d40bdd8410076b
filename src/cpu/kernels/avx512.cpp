#define DLLM_ISA avx512

#include "cpu/kernels/simd_avx512.h"
// the policy comes before the kernels written over it
#include "cpu/kernels/kernels-inl.h"
