#define DLLM_WINDOW_ISA vnni

#include "npu/accuracy/lane_kernel-inl.h"
#include "npu/accuracy/window_avx512-inl.h"
