#define DLLM_WINDOW_ISA avx512

#include "npu/accuracy/window_avx512-inl.h"
