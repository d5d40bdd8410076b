#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/testing/recording_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dllm::fuzz_recording(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
