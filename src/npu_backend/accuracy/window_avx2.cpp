#define DLLM_WINDOW_ISA avx2

#include "npu/accuracy/lane_kernel-inl.h"
#include "npu/accuracy/window_kernel-inl.h"
