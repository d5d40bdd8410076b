#pragma once

#include <cstdint>

namespace dllm {

/// What the four bits of IQ4_NL and IQ4_XS stand for: values that are closer together near zero. Definition: GGML,
/// kvalues_iq4nl.
inline constexpr std::int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace dllm
