#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dllm {

/// One decoding step over bytes that may not be UTF-8.
struct Utf8Char {
  char32_t code = 0;       ///< the scalar value; meaningless unless valid
  std::uint32_t size = 1;  ///< its length in bytes; for invalid input the maximal subpart to replace by one U+FFFD
  bool valid = false;      ///< shortest form, no surrogate, at most U+10FFFF
  bool truncated = false;  ///< invalid only because the text ends: more bytes could complete it
};

/// Decodes the character at `offset` < text.size().
Utf8Char utf8_at(std::string_view text, std::size_t offset);

/// Length of the longest valid prefix of text.substr(offset), from `offset`.
std::size_t utf8_valid_run(std::string_view text, std::size_t offset);

void append_utf8(std::string& out, char32_t code);

/// Every maximal invalid subpart becomes one U+FFFD (Unicode 15, section 3.9, "substitution of maximal subparts").
std::string replace_invalid_utf8(std::string_view text);

/// Python's str.isspace() for one character: White_Space, and U+001C to U+001F.
bool is_unicode_space(char32_t code);
/// The property White_Space.
bool is_white_space(char32_t code);

}  // namespace dllm
