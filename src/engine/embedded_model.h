#pragma once

#include <cstddef>
#include <span>

namespace dllm {

/// The GGUF that is linked into the library (models/README.md). 64-byte aligned, static lifetime. Empty in WebAssembly,
/// where a site has it as a file of its own, which its two programs share.
std::span<const std::byte> embedded_model();

}  // namespace dllm
