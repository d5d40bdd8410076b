#pragma once

#include <string>
#include <string_view>

/// Unicode's full case mappings (SpecialCasing.txt, without its rules for languages), as in Python's str.
namespace dllm::jinja {

enum class Case { kUpper, kLower, kTitle };

/// Appends the mapping of one character, which may be several characters. `text` and `at`, the character's place in it:
/// whether a capital sigma ends a word.
void append_cased(std::string& out, char32_t code, Case to, std::string_view text, std::size_t at);

/// The properties Cased, Uppercase and Lowercase.
bool is_cased(char32_t code);
bool is_upper(char32_t code);
bool is_lower(char32_t code);

/// str.isdigit(): decimal digits, and others such as superscripts.
bool is_digit_char(char32_t code);

}  // namespace dllm::jinja
