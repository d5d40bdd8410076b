#include "npu_core/assembler/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(npu_assembler, [](std::string_view text) {
  dllm::npu::fuzz_assembler(dllm::fuzz::data_of(text), text.size());
  dllm::npu::fuzz_program(dllm::fuzz::data_of(text), text.size());
})
