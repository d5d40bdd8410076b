#define DLLM_WINDOW_ISA avx512

#include "npu/accuracy/lane_kernel-inl.h"
#include "npu/accuracy/window_avx512-inl.h"
