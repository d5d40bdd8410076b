#define DLLM_ISA avxvnni
#define DLLM_AVX_VNNI

#include "cpu/kernels/simd_avx2.h"
// the policy comes before the kernels written over it
#include "cpu/kernels/kernels-inl.h"
