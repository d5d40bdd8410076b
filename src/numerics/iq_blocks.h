#pragma once

#include <cstdint>
#include <cstring>

#include "numerics/iq_grids.h"
#include "numerics/tensor_type.h"

// Blocks of 256 of GGML's types IQ1, IQ2 and IQ3, taken apart: one half d, an odd integer s per 16 or 32 elements, and
// one of at most sixteen values v per element. Definitions: GGML, block_iq2_xxs and its neighbours.
//
//   IQ2      v is 8, 25 or 43 with a sign, x = d s v / 8; a code is the place of the magnitude, with the sign in bit 2
//   IQ3_XXS  v is one of eight even magnitudes from 4 to 62 with a sign, x = d s v / 4; the sign is bit 3
//   IQ3_S    v is odd, from 1 to 15, with a sign, x = d s v; the sign is bit 3
//   IQ1      v is 8 g + 1 or 8 g - 1 with g in -1, 0, 1, x = d s v / 8; a code is g + 1, with bit 2 for the minus

namespace dllm {

inline constexpr int kIqElems = 256;

/// One block, taken apart.
struct IqBlock {
  std::uint8_t codes[kIqElems];
  std::uint8_t scale[16];  ///< s: of groups of 16, or the first eight of groups of 32
  std::uint8_t d[2];       ///< binary16
};

/// v of each code. IQ2 and IQ1 have three values of either sign, so their codes 3 and 7 do not occur, and v is 0 there.
inline constexpr std::int8_t kIq2Values[8] = {8, 25, 43, 0, -8, -25, -43, 0};
inline constexpr std::int8_t kIq3XxsValues[16] = {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};
inline constexpr std::int8_t kIq3SValues[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};
inline constexpr std::int8_t kIq1Values[8] = {-7, 1, 9, 0, -9, -1, 7, 0};

namespace iq {

inline unsigned word_at(const std::uint8_t* p) { return static_cast<unsigned>(p[0] | p[1] << 8); }
inline std::uint32_t long_at(const std::uint8_t* p) { return word_at(p) | word_at(p + 2) << 16; }

/// Seven signs and an eighth that makes the number of minuses even.
inline unsigned even_signs(unsigned seven) {
  const unsigned folded = seven ^ seven >> 4, parity = (0x6996u >> (folded & 15u)) & 1u;
  return seven | parity << 7;
}

/// Eight codes: digits of two bits, signs in bit 2.
inline void eight(unsigned group, unsigned signs, std::uint8_t* codes) {
  for (unsigned i = 0; i < 8; ++i)
    codes[i] = static_cast<std::uint8_t>((group >> (2 * i) & 3u) | (signs >> i & 1u) << 2);
}
/// Four codes: digits of three bits, signs in bit 3.
inline void four(unsigned group, unsigned signs, std::uint8_t* codes) {
  for (unsigned i = 0; i < 4; ++i)
    codes[i] = static_cast<std::uint8_t>((group >> (3 * i) & 7u) | (signs >> i & 1u) << 3);
}
/// `count` scales of four bits, two a byte.
inline void nibble_scales(const std::uint8_t* b, int count, std::uint8_t* scale) {
  for (int j = 0; j < count; ++j) scale[j] = static_cast<std::uint8_t>(2 * (b[j / 2] >> (j % 2 * 4) & 15) + 1);
}

inline void read_iq2_xxs(const std::uint8_t* b, IqBlock& out) {
  std::memcpy(out.d, b, 2);
  b += 2;
  for (int j = 0; j < 8; ++j, b += 8) {
    const std::uint32_t rest = long_at(b + 4);
    for (int l = 0; l < 4; ++l)
      eight(kIq2XxsGrid[b[l]], even_signs(rest >> (7 * l) & 127u), out.codes + 32 * j + 8 * l);
    out.scale[j] = static_cast<std::uint8_t>(2 * (rest >> 28) + 1);
  }
}
inline void read_iq2_xs(const std::uint8_t* b, IqBlock& out) {
  std::memcpy(out.d, b, 2);
  for (int l = 0; l < 32; ++l) {
    const unsigned word = word_at(b + 2 + 2 * l);
    eight(kIq2XsGrid[word & 511u], even_signs(word >> 9), out.codes + 8 * l);
  }
  nibble_scales(b + 66, 16, out.scale);
}
inline void read_iq2_s(const std::uint8_t* b, IqBlock& out) {
  std::memcpy(out.d, b, 2);
  for (int l = 0; l < 32; ++l) {
    const unsigned upper = b[66 + l / 4] >> (l % 4 * 2) & 3u;
    eight(kIq2SGrid[b[2 + l] | upper << 8], b[34 + l], out.codes + 8 * l);
  }
  nibble_scales(b + 74, 16, out.scale);
}
inline void read_iq3_xxs(const std::uint8_t* b, IqBlock& out) {
  std::memcpy(out.d, b, 2);
  for (int j = 0; j < 8; ++j) {
    const std::uint32_t rest = long_at(b + 66 + 4 * j);
    for (int l = 0; l < 4; ++l) {
      const unsigned signs = even_signs(rest >> (7 * l) & 127u);
      const std::uint8_t* const places = b + 2 + 8 * j + 2 * l;
      four(kIq3XxsGrid[places[0]], signs, out.codes + 32 * j + 8 * l);
      four(kIq3XxsGrid[places[1]], signs >> 4, out.codes + 32 * j + 8 * l + 4);
    }
    out.scale[j] = static_cast<std::uint8_t>(2 * (rest >> 28) + 1);
  }
}
inline void read_iq3_s(const std::uint8_t* b, IqBlock& out) {
  std::memcpy(out.d, b, 2);
  for (int l = 0; l < 64; ++l) {
    const unsigned upper = b[66 + l / 8] >> (l % 8) & 1u, signs = b[74 + l / 2] >> (l % 2 * 4);
    four(kIq3SGrid[b[2 + l] | upper << 8], signs, out.codes + 4 * l);
  }
  nibble_scales(b + 106, 8, out.scale);
}
inline void read_iq1_s(const std::uint8_t* b, IqBlock& out) {
  std::memcpy(out.d, b, 2);
  for (int j = 0; j < 8; ++j) {
    const unsigned word = word_at(b + 34 + 2 * j), minus = word >> 15 != 0 ? 255u : 0u;
    for (int l = 0; l < 4; ++l)
      eight(kIq1Grid[b[2 + 4 * j + l] | (word >> (3 * l) & 7u) << 8], minus, out.codes + 32 * j + 8 * l);
    out.scale[j] = static_cast<std::uint8_t>(2 * (word >> 12 & 7u) + 1);
  }
}
/// d is in the highest four bits of the four words of scales.
inline void read_iq1_m(const std::uint8_t* b, IqBlock& out) {
  unsigned d = 0;
  for (int j = 0; j < 4; ++j) {
    const unsigned word = word_at(b + 48 + 2 * j);
    d |= word >> 12 << (4 * j);
    for (int i = 0; i < 4; ++i) out.scale[4 * j + i] = static_cast<std::uint8_t>(2 * (word >> (3 * i) & 7u) + 1);
  }
  out.d[0] = static_cast<std::uint8_t>(d & 255u), out.d[1] = static_cast<std::uint8_t>(d >> 8);
  for (int l = 0; l < 32; ++l) {
    const unsigned high = b[32 + l / 2] >> (l % 2 * 4);
    eight(kIq1Grid[b[l] | (high & 7u) << 8], (high & 8u) != 0 ? 255u : 0u, out.codes + 8 * l);
  }
}

}  // namespace iq

/// `b` has a block of one of these types, and need not be aligned.
inline void read_iq_block(TensorType type, const std::uint8_t* b, IqBlock& out) {
  switch (type) {
    case TensorType::kIQ2_XXS:
      return iq::read_iq2_xxs(b, out);
    case TensorType::kIQ2_XS:
      return iq::read_iq2_xs(b, out);
    case TensorType::kIQ2_S:
      return iq::read_iq2_s(b, out);
    case TensorType::kIQ3_XXS:
      return iq::read_iq3_xxs(b, out);
    case TensorType::kIQ3_S:
      return iq::read_iq3_s(b, out);
    case TensorType::kIQ1_S:
      return iq::read_iq1_s(b, out);
    case TensorType::kIQ1_M:
      return iq::read_iq1_m(b, out);
    default:
      return;
  }
}

}  // namespace dllm
