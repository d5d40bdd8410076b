#include "npu_core/assembler/testing/fuzz_entry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dllm::npu::fuzz_assembler(data, size);
  dllm::npu::fuzz_program(data, size);
  return 0;
}
