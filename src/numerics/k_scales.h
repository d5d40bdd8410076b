#pragma once

#include <cstdint>

#include "numerics/k_search.h"

/// What Q4_K and Q5_K share: a super-block of 256 elements in eight sub-blocks, x = d * scale[j] * q - dmin * min[j],
/// with 6-bit scales and minima packed into 12 bytes.
namespace dllm {

struct SubScale {
  std::uint8_t scale;
  std::uint8_t min;
};

/// Sub-block j in 0..7. Bytes 0-3 hold scales 0-3 and bytes 4-7 minima 0-3 in their low six bits; bytes 8-11 hold the
/// low nibbles of scales (low) and minima (high) 4-7, whose upper two bits fill the tops of bytes 0-3 and 4-7.
inline SubScale unpack_sub_scale(const std::uint8_t packed[12], int j) {
  if (j < 4) return {static_cast<std::uint8_t>(packed[j] & 63), static_cast<std::uint8_t>(packed[j + 4] & 63)};
  const int both = packed[j + 4];
  return {static_cast<std::uint8_t>((both & 15) | (packed[j - 4] >> 6) << 4),
          static_cast<std::uint8_t>((both >> 4) | (packed[j] >> 6) << 4)};
}

/// A super-block before its levels are packed in the format's own way.
struct AffineSuperBlock {
  std::uint16_t d;     ///< binary16
  std::uint16_t dmin;  ///< binary16
  std::uint8_t scales[12];
  std::uint8_t levels[kSuperBlock];
};

AffineSuperBlock quantize_affine(const float* x, const AffineCandidates& candidates);

}  // namespace dllm
