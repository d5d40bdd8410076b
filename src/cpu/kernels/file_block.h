#pragma once

#include <cstdint>
#include <cstring>

#include "numerics/iq_blocks.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {

/// The longest block of the packed formats, that of K-quants.
inline constexpr std::int64_t kFileBlockElems = 256;

/// One block of a weight in the file, taken apart.
struct FileBlock {
  std::uint8_t codes[kFileBlockElems];  ///< u
  std::uint8_t scale[16 * 2];           ///< per group: a half (2 bytes), an exponent, an integer or a pair (1 byte)
  std::uint8_t min[8 * 2];
  std::uint8_t super[2], super_min[2];  ///< K-quants: halves that the integers multiply
};

namespace file_block {

inline void nibbles(const std::uint8_t* q, std::uint8_t* u) {
  for (int i = 0; i < 16; ++i) u[i] = q[i] & 15;
  for (int i = 0; i < 16; ++i) u[16 + i] = static_cast<std::uint8_t>(q[i] >> 4);
}
inline void fifth_bits(const std::uint8_t* mask, std::uint8_t* u) {
  std::uint32_t word;
  std::memcpy(&word, mask, 4);
  for (int i = 0; i < 32; ++i) u[i] = static_cast<std::uint8_t>(u[i] | (((word >> i) & 1u) << 4));
}

/// The eight 6-bit scales and minima of Q4_K and Q5_K, packed in 12 bytes: the first four whole, the upper bits of the
/// last four in the two spare bits of the first.
inline void k_scales(const std::uint8_t* b, FileBlock& out) {
  std::memcpy(out.super, b, 2);
  std::memcpy(out.super_min, b + 2, 2);
  const std::uint8_t* q = b + 4;
  for (int j = 0; j < 8; ++j) {
    out.scale[j] = static_cast<std::uint8_t>(j < 4 ? q[j] & 63 : (q[j + 4] & 15) | ((q[j - 4] >> 6) << 4));
    out.min[j] = static_cast<std::uint8_t>(j < 4 ? q[j + 4] & 63 : (q[j + 4] >> 4) | ((q[j] >> 6) << 4));
  }
}
inline void k_nibbles(const std::uint8_t* q, std::uint8_t* u) {
  for (int j = 0; j < 4; ++j, q += 32, u += 64) {
    for (int i = 0; i < 32; ++i) u[i] = q[i] & 15;
    for (int i = 0; i < 32; ++i) u[32 + i] = static_cast<std::uint8_t>(q[i] >> 4);
  }
}

/// The pairs of bits of Q2_K and Q3_K: byte i of 32 has those of elements i, i + 32, i + 64 and i + 96.
inline void k_pairs(const std::uint8_t* q, std::uint8_t* u) {
  for (int n = 0; n < 2; ++n, q += 32, u += 128)
    for (int j = 0; j < 4; ++j)
      for (int i = 0; i < 32; ++i) u[32 * j + i] = static_cast<std::uint8_t>((q[i] >> (2 * j)) & 3);
}
/// The sixteen 6-bit scales of Q3_K, less 32, in 12 bytes: nibbles in the first eight, upper bits in the last four.
inline void q3_scales(const std::uint8_t* q, std::uint8_t* scale) {
  for (int j = 0; j < 16; ++j) {
    const int low = (q[j % 8] >> (j < 8 ? 0 : 4)) & 15, high = (q[8 + j % 4] >> (2 * (j / 4))) & 3;
    scale[j] = static_cast<std::uint8_t>((low | (high << 4)) - 32);
  }
}

/// One more bit of each of 256 codes, at `place`: bit j of byte i belongs to code 32 j + i.
inline void k_high_bits(const std::uint8_t* b, int place, std::uint8_t* u) {
  for (int j = 0; j < 8; ++j)
    for (int i = 0; i < 32; ++i)
      u[32 * j + i] = static_cast<std::uint8_t>(u[32 * j + i] | (((b[i] >> j) & 1) << place));
}

/// Half the value of NVFP4's scale as a half, which represents them all: of magnitude 2^-10 to 240. The code for NaN is
/// zero, and the sign is not read (numerics/nvfp4.cpp).
inline std::uint16_t half_of_e4m3(std::uint8_t code) {
  const int exponent = code >> 3 & 15;
  int mantissa = code & 7;
  if (code == 0x7f || (exponent == 0 && mantissa == 0)) return 0;
  if (exponent > 0) return static_cast<std::uint16_t>((exponent - 8 + 15) << 10 | mantissa << 7);
  int power = -10;  // mantissa 2^-10
  for (; mantissa < 8; mantissa *= 2) --power;
  return static_cast<std::uint16_t>((power + 3 + 15) << 10 | (mantissa & 7) << 7);
}

/// Four groups of 16: their scales, then eight bytes of each, with elements j and j + 8 in byte j.
inline void read_nvfp4(const std::uint8_t* b, FileBlock& out) {
  for (int g = 0; g < 4; ++g) {
    const std::uint16_t scale = half_of_e4m3(b[g]);
    std::memcpy(out.scale + 2 * g, &scale, 2);
    for (int j = 0; j < 8; ++j) {
      out.codes[16 * g + j] = b[4 + 8 * g + j] & 15;
      out.codes[16 * g + 8 + j] = static_cast<std::uint8_t>(b[4 + 8 * g + j] >> 4);
    }
  }
}

inline void read_listed(TensorType type, const std::uint8_t* b, FileBlock& out) {
  IqBlock block;
  read_iq_block(type, b, block);
  std::memcpy(out.codes, block.codes, sizeof block.codes);
  std::memcpy(out.scale, block.scale, sizeof block.scale);
  std::memcpy(out.super, block.d, sizeof block.d);
}

}  // namespace file_block

/// The types of blocks of 256.
inline void read_super_block(TensorType type, const std::uint8_t* b, FileBlock& out) {
  using namespace file_block;
  std::uint8_t* u = out.codes;
  switch (type) {
    case TensorType::kQ2_K:
      std::memcpy(out.scale, b, 16);
      std::memcpy(out.super, b + 80, 2);
      std::memcpy(out.super_min, b + 82, 2);
      return k_pairs(b + 16, u);
    case TensorType::kQ3_K:
      q3_scales(b + 96, out.scale);
      std::memcpy(out.super, b + 108, 2);
      k_pairs(b + 32, u);
      return k_high_bits(b, 2, u);
    case TensorType::kQ4_K:
      k_scales(b, out);
      return k_nibbles(b + 16, u);
    case TensorType::kQ5_K:
      k_scales(b, out);
      k_nibbles(b + 48, u);
      return k_high_bits(b + 16, 4, u);
    case TensorType::kQ6_K: {
      const std::uint8_t *low = b, *high = b + 128;
      std::memcpy(out.scale, b + 192, 16);
      std::memcpy(out.super, b + 208, 2);
      for (int n = 0; n < 2; ++n, low += 64, high += 32, u += 128)
        for (int i = 0; i < 32; ++i) {
          u[i] = static_cast<std::uint8_t>((low[i] & 15) | ((high[i] & 3) << 4));
          u[32 + i] = static_cast<std::uint8_t>((low[32 + i] & 15) | (((high[i] >> 2) & 3) << 4));
          u[64 + i] = static_cast<std::uint8_t>((low[i] >> 4) | (((high[i] >> 4) & 3) << 4));
          u[96 + i] = static_cast<std::uint8_t>((low[32 + i] >> 4) | ((high[i] >> 6) << 4));
        }
      return;
    }
    case TensorType::kIQ4_XS:
      std::memcpy(out.super, b, 2);
      for (int j = 0; j < 8; ++j) {
        const int low = (b[4 + j / 2] >> (j % 2 * 4)) & 15, high = (b[2 + j / 4] >> (j % 4 * 2)) & 3;
        out.scale[j] = static_cast<std::uint8_t>((low | (high << 4)) - 32);
        nibbles(b + 8 + 16 * j, u + 32 * j);
      }
      return;
    default:
      return read_listed(type, b, out);
  }
}

/// `type` is one of packed_format()'s types of codes; what its blocks lack is not written. Inline, so that packing
/// loops over constant lengths.
inline void read_file_block(TensorType type, const std::uint8_t* b, FileBlock& out) {
  using namespace file_block;
  std::uint8_t* u = out.codes;
  switch (type) {
    case TensorType::kQ4_0:
      std::memcpy(out.scale, b, 2);
      return nibbles(b + 2, u);
    case TensorType::kQ4_1:
      std::memcpy(out.scale, b, 2);
      std::memcpy(out.min, b + 2, 2);
      return nibbles(b + 4, u);
    case TensorType::kQ5_0:
      std::memcpy(out.scale, b, 2);
      nibbles(b + 6, u);
      return fifth_bits(b + 2, u);
    case TensorType::kQ5_1:
      std::memcpy(out.scale, b, 2);
      std::memcpy(out.min, b + 2, 2);
      nibbles(b + 8, u);
      return fifth_bits(b + 4, u);
    case TensorType::kQ8_0:
      std::memcpy(out.scale, b, 2);
      for (int i = 0; i < 32; ++i) u[i] = static_cast<std::uint8_t>(b[2 + i] ^ 0x80);
      return;
    case TensorType::kIQ4_NL:
      std::memcpy(out.scale, b, 2);
      return nibbles(b + 2, u);
    case TensorType::kNVFP4:
      return read_nvfp4(b, out);
    case TensorType::kMXFP4:
      out.scale[0] = b[0];
      return nibbles(b + 1, u);
    default:
      return read_super_block(type, b, out);
  }
}

}  // namespace dllm::cpu
