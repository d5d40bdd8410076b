#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dllm {

/// GPT-2's printable substitutes for bytes: '!'..'~', U+00A1..U+00AC and U+00AE..U+00FF represent themselves, the other
/// 68 bytes are U+0100, U+0101, ... in ascending order, so that a space is written U+0120.
char32_t byte_to_alphabet(std::uint8_t byte);

/// The inverse; nullopt for characters outside the alphabet.
std::optional<std::uint8_t> alphabet_to_byte(char32_t code);

/// Bytes of a token written in the alphabet; nullopt if any character is outside it.
std::optional<std::string> decode_alphabet(std::string_view token);

/// Bytes written in the alphabet (UTF-8).
std::string encode_alphabet(std::string_view bytes);

}  // namespace dllm
