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

AffineSuperBlock round_elements(const float* x, const AffineFit* fits, const BlockScales& chosen, int top) {
  AffineSuperBlock block;
  block.d = f32_to_f16(chosen.d);
  block.dmin = f32_to_f16(chosen.dmin);
  for (int j = 0; j < kSubBlocks; ++j) pack_sub_scale({chosen.scale[j], chosen.min[j]}, j, block.scales);
  for (int j = 0; j < kSubBlocks; ++j) {
    const SubScale sub = unpack_sub_scale(block.scales, j);
    const float scale = f16_to_f32(block.d) * static_cast<float>(sub.scale);
    const float min = f16_to_f32(block.dmin) * static_cast<float>(sub.min);
    for (int i = j * kSubElems; i < (j + 1) * kSubElems; ++i) {
      block.levels[i] = static_cast<std::uint8_t>(level_on_grid(x[i], scale, min, fits[j], top));
    }
  }
  return block;
}

}  // namespace

BlockScales choose_scales(std::span<const AffineFit> fits, int top) {
  float max_scale = 0.0f, max_min = 0.0f;
  for (const AffineFit& fit : fits) {
    max_scale = std::max(max_scale, fit.scale);
    max_min = std::max(max_min, fit.min);
  }
  const float limit = static_cast<float>(top);
  const float inverse_scale = max_scale > 0.0f ? limit / max_scale : 0.0f;
  const float inverse_min = max_min > 0.0f ? limit / max_min : 0.0f;
  BlockScales chosen;
  chosen.d = max_scale / limit, chosen.dmin = max_min / limit;
  for (std::size_t j = 0; j < fits.size(); ++j) {
    chosen.scale[j] = static_cast<std::uint8_t>(nearest_level(inverse_scale * fits[j].scale, 0, top));
    chosen.min[j] = static_cast<std::uint8_t>(nearest_level(inverse_min * fits[j].min, 0, top));
  }
  return chosen;
}

BlockScales choose_scales(std::span<const AffineFit> fits, int top, const float* weights) {
  const auto count = static_cast<int>(fits.size()), width = kSuperBlock / count;
  float scales[16], mins[16], sums[16];
  for (int j = 0; j < count; ++j) {
    scales[j] = fits[static_cast<std::size_t>(j)].scale, mins[j] = fits[static_cast<std::size_t>(j)].min,
    sums[j] = 0.0f;
    for (int i = j * width; i < (j + 1) * width; ++i) sums[j] += weights[i];
  }
  BlockScales chosen;
  chosen.d = fit_positive(scales, count, top, sums, chosen.scale);
  chosen.dmin = fit_positive(mins, count, top, sums, chosen.min);
  return chosen;
}

AffineSuperBlock quantize_affine(const float* x, const AffineCandidates& candidates) {
  AffineFit fits[kSubBlocks];
  fit_affine(x, candidates, fits);
  return round_elements(x, fits, choose_scales(fits, kTopScale), candidates.top);
}

AffineSuperBlock quantize_affine(const float* x, int top, const float* weights) {
  AffineFit fits[kSubBlocks];
  fit_affine(x, weighted_candidates(top), fits, weights);
  return round_elements(x, fits, choose_scales(fits, kTopScale, weights), top);
}

}  // namespace dllm
