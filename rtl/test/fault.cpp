#include "test/fault.h"

namespace {
int active_fault = 0;
}

extern "C" int dllm_fault() { return active_fault; }

namespace dllm::rtl {
void set_fault(int number) { active_fault = number; }
}  // namespace dllm::rtl
