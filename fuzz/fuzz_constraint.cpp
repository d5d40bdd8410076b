#include <cstddef>
#include <cstdint>
#include <string_view>

#include "constrain/testing/fuzz_entry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dllm::constrain::fuzz_constraint(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
