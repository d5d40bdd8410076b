#define DLLM_ISA avxvnni
#define DLLM_AVX_VNNI

#include "cpu/kernels/simd_avx2.h"
// the policy must precede the kernels based on it
#include "cpu/kernels/kernels-inl.h"
