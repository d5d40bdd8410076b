#include "numerics/k_scales.h"

#include <algorithm>

#include "numerics/half.h"

namespace dllm {
namespace {

constexpr int kSubBlocks = 8, kSubElems = 32, kTopScale = 63;

void pack_sub_scale(SubScale value, int j, std::uint8_t packed[12]) {
  if (j < 4) {
    packed[j] = value.scale;
    packed[j + 4] = value.min;
    return;
  }
  packed[j + 4] = static_cast<std::uint8_t>((value.scale & 15) | (value.min & 15) << 4);
  packed[j - 4] = static_cast<std::uint8_t>(packed[j - 4] | (value.scale >> 4) << 6);
  packed[j] = static_cast<std::uint8_t>(packed[j] | (value.min >> 4) << 6);
}

}  // namespace

AffineSuperBlock quantize_affine(const float* x, const AffineCandidates& candidates) {
  AffineFit fits[kSubBlocks];
  fit_affine(x, candidates, fits);
  float max_scale = 0.0f, max_min = 0.0f;
  for (const AffineFit& fit : fits) {
    max_scale = std::max(max_scale, fit.scale);
    max_min = std::max(max_min, fit.min);
  }
  const float inverse_scale = max_scale > 0.0f ? kTopScale / max_scale : 0.0f;
  const float inverse_min = max_min > 0.0f ? kTopScale / max_min : 0.0f;

  AffineSuperBlock block;
  block.d = f32_to_f16(max_scale / kTopScale);
  block.dmin = f32_to_f16(max_min / kTopScale);
  for (int j = 0; j < kSubBlocks; ++j) {
    const int scale = nearest_level(inverse_scale * fits[j].scale, 0, kTopScale);
    const int min = nearest_level(inverse_min * fits[j].min, 0, kTopScale);
    pack_sub_scale({static_cast<std::uint8_t>(scale), static_cast<std::uint8_t>(min)}, j, block.scales);
  }
  for (int j = 0; j < kSubBlocks; ++j) {
    const SubScale sub = unpack_sub_scale(block.scales, j);
    const float scale = f16_to_f32(block.d) * static_cast<float>(sub.scale);
    const float min = f16_to_f32(block.dmin) * static_cast<float>(sub.min);
    for (int i = j * kSubElems; i < (j + 1) * kSubElems; ++i) {
      // The decoder's grid uses the rounded scales, so round the elements to that grid. Where a scale rounds to zero,
      // the levels do not matter; we keep those of the fit, as GGML does.
      const float level = scale != 0.0f ? (x[i] + min) / scale : (x[i] - fits[j].origin) * fits[j].inverse;
      block.levels[i] = static_cast<std::uint8_t>(nearest_level(level, 0, candidates.top));
    }
  }
  return block;
}

}  // namespace dllm
