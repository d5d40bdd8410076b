#define DLLM_ISA scalar

#include "cpu/kernels/simd_scalar.h"
// the policy must precede the kernels based on it
#include "cpu/kernels/kernels-inl.h"
