#define DLLM_WINDOW_ISA avx2

#include "npu_backend/accuracy/lane_kernel-inl.h"
#include "npu_backend/accuracy/window_kernel-inl.h"
