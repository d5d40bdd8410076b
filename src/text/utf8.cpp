#include "text/utf8.h"

namespace dllm {
namespace {

// Bounds of the second byte, which exclude overlong forms, surrogates and values above U+10FFFF (Unicode table 3-7).
struct LeadByte {
  std::uint32_t size = 0;  // 0: not a lead byte
  std::uint8_t low = 0x80, high = 0xBF;
};

LeadByte classify(std::uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte >= 0xC2 && byte <= 0xDF) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

}  // namespace

Utf8Char utf8_at(std::string_view text, std::size_t offset) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[offset + i]); };
  const LeadByte lead = classify(byte(0));
  if (lead.size == 0) return {};
  if (lead.size == 1) return {byte(0), 1, true, false};
  char32_t code = byte(0) & (0xFFU >> (lead.size + 1));
  for (std::uint32_t i = 1; i < lead.size; ++i) {
    if (offset + i >= text.size()) return {0, i, false, true};
    const std::uint8_t low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {0, i, false, false};
    code = (code << 6) | (byte(i) & 0x3FU);
  }
  return {code, lead.size, true, false};
}

std::size_t utf8_valid_run(std::string_view text, std::size_t offset) {
  std::size_t end = offset;
  while (end < text.size()) {
    const Utf8Char c = utf8_at(text, end);
    if (!c.valid) break;
    end += c.size;
  }
  return end - offset;
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t bits) { out.push_back(static_cast<char>(static_cast<std::uint8_t>(bits))); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    if (c.valid) {
      out.append(text.substr(i, c.size));
    } else {
      append_utf8(out, 0xFFFD);
    }
    i += c.size;
  }
  return out;
}

bool is_white_space(char32_t code) { return is_unicode_space(code) && (code < 0x1C || code > 0x1F); }

bool is_unicode_space(char32_t code) {
  if (code <= 0x20) return code == 0x20 || (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x1F);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

}  // namespace dllm
