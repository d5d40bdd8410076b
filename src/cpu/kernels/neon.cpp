#define DLLM_ISA neon

#include "cpu/kernels/simd_neon.h"
// the policy comes before the kernels written over it
#include "cpu/kernels/kernels-inl.h"
