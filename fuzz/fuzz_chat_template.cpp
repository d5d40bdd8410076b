#include <cstddef>
#include <cstdint>

#include "text/testing/fuzz_entry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dllm::fuzz_chat_template(data, size);
  return 0;
}
