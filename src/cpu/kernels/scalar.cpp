#define DLLM_ISA scalar

#include "cpu/kernels/simd_scalar.h"
// the policy comes before the kernels written over it
#include "cpu/kernels/kernels-inl.h"
