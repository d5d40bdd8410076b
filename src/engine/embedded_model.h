#pragma once

#include <cstddef>
#include <span>

namespace dllm {

/// The GGUF that is linked into the library (models/README.md). 64-byte aligned, static lifetime.
std::span<const std::byte> embedded_model();

}  // namespace dllm
