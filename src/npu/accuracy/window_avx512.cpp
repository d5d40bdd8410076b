#define DLLM_WINDOW_ISA avx512

#include "npu/accuracy/window_kernel-inl.h"
