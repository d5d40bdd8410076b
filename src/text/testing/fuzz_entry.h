#pragma once

#include <cstddef>
#include <cstdint>

namespace dllm {

/// The bodies of the fuzz targets, which tests run over fuzz/corpus. They abort if a property fails, not on errors.
///
/// `data`: a tokenizer.json, a byte 0, and text to encode with it (without byte 0 the input is both).
void fuzz_tokenizer_json(const std::uint8_t* data, std::size_t size);
/// `data`: a chat template, rendered for a fixed conversation.
void fuzz_chat_template(const std::uint8_t* data, std::size_t size);

}  // namespace dllm
