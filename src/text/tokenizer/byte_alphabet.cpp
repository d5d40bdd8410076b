#include "text/tokenizer/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace dllm {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr unsigned kShifted = 68;  // bytes that do not represent themselves

struct Tables {
  std::array<char32_t, 256> forward{};
  std::array<std::uint8_t, kShifted> shifted{};  // byte of U+0100 + index
};

constexpr Tables make_tables() {
  Tables tables;
  unsigned next = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (stands_for_itself(byte)) {
      tables.forward[byte] = byte;
    } else {
      tables.shifted[next] = static_cast<std::uint8_t>(byte);
      tables.forward[byte] = 0x100 + next++;
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

char32_t byte_to_alphabet(std::uint8_t byte) { return kTables.forward[byte]; }

std::optional<std::uint8_t> alphabet_to_byte(char32_t code) {
  if (code < 0x100) {
    if (!stands_for_itself(code)) return std::nullopt;
    return static_cast<std::uint8_t>(code);
  }
  if (code >= 0x100 + kShifted) return std::nullopt;
  return kTables.shifted[code - 0x100];
}

std::optional<std::string> decode_alphabet(std::string_view token) {
  std::string bytes;
  for (std::size_t i = 0; i < token.size();) {
    const Utf8Char c = utf8_at(token, i);
    if (!c.valid) return std::nullopt;
    const auto byte = alphabet_to_byte(c.code);
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    i += c.size;
  }
  return bytes;
}

std::string encode_alphabet(std::string_view bytes) {
  std::string token;
  for (const char byte : bytes) append_utf8(token, byte_to_alphabet(static_cast<std::uint8_t>(byte)));
  return token;
}

}  // namespace dllm
