#pragma once

#include <cstdint>
#include <span>

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

/// The two scales of a super-block, and each sub-block's level of them, in 0..top.
struct BlockScales {
  float d = 0.0f, dmin = 0.0f;
  std::uint8_t scale[16], min[16];
};
/// The largest scale and the largest minimum become `top`.
BlockScales choose_scales(std::span<const AffineFit> fits, int top);
/// By fit_positive(), sub-blocks weighted with the sums of their elements' weights.
BlockScales choose_scales(std::span<const AffineFit> fits, int top, const float* weights);

/// The level of x on the decoder's grid, whose scale and minimum are rounded. Where a scale rounds to zero, the levels
/// do not matter; we keep those of the fit, as GGML does.
inline int level_on_grid(float x, float scale, float min, const AffineFit& fit, int top) {
  return scale != 0.0f ? nearest_level((x + min) / scale, 0, top) : level_of(fit, x, top);
}

/// A super-block before its levels are packed in the format's own way.
struct AffineSuperBlock {
  std::uint16_t d;     ///< binary16
  std::uint16_t dmin;  ///< binary16
  std::uint8_t scales[12];
  std::uint8_t levels[kSuperBlock];
};

AffineSuperBlock quantize_affine(const float* x, const AffineCandidates& candidates);
/// The same with weights of the elements, whose sums weight the sub-blocks' scales and minima.
AffineSuperBlock quantize_affine(const float* x, int top, const float* weights);

}  // namespace dllm
