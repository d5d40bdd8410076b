#define DLLM_WINDOW_ISA vnni

#include "npu_backend/accuracy/lane_kernel-inl.h"
#include "npu_backend/accuracy/window_avx512-inl.h"
