#include <cstddef>
#include <cstdint>
#include <string_view>

#include "npu_compiler/sweep/testing/fuzz_entry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dllm::npu::fuzz_npu_toml(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
