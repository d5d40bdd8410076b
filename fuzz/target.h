#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "growth.h"

/// A fuzz target: `call(std::string_view)` for every input, for some of them stretched (growth.h), and when a run
/// begins for the families of the target.
#define DLLM_FUZZ_TARGET(name, call)                                                       \
  extern "C" int LLVMFuzzerInitialize(int* count, char*** words) {                         \
    if (dllm::fuzz::begins_a_run(*count, *words)) dllm::fuzz::check_families(#name, call); \
    return 0;                                                                              \
  }                                                                                        \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {      \
    const std::string_view text(reinterpret_cast<const char*>(data), size);                \
    call(text);                                                                            \
    dllm::fuzz::check_stretched(text, call);                                               \
    return 0;                                                                              \
  }

namespace dllm::fuzz {

/// Not when a corpus is merged, or an input minimized: the fuzzer starts itself many times for that.
inline bool begins_a_run(int count, char** words) {
  for (int i = 1; i < count; ++i)
    if (std::strncmp(words[i], "-m", 2) == 0 && std::strncmp(words[i], "-max_", 5) != 0) return false;
  return true;
}

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
inline const std::uint8_t* data_of(std::string_view text) { return reinterpret_cast<const std::uint8_t*>(text.data()); }

}  // namespace dllm::fuzz
