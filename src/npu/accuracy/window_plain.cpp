#define DLLM_WINDOW_ISA plain

#include "npu/accuracy/window_kernel-inl.h"
