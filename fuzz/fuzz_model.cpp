#include <cstddef>
#include <cstdint>
#include <span>

#include "model/testing/fuzz_entry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dllm::fuzz_model(std::as_bytes(std::span(data, size)));
  return 0;
}
