#include <cstddef>
#include <cstdint>
#include <string_view>

#include "app/testing/fuzz_entry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dllm::app::fuzz_compare_spec(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
