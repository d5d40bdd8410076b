#include <cstdint>

#include "format/testing/fuzz_entry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dllm::fuzz_safetensors(std::as_bytes(std::span(data, size)));
  return 0;
}
