#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/testing/fuzz_entry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dllm::fuzz_caches(std::as_bytes(std::span(data, size)));
  return 0;
}
