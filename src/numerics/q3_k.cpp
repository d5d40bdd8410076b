// Q3_K: 256 elements, x = d * (scale[j] - 32) * (q - 4) for the j-th 16, q in 0..7, scales of six bits. The low two
// bits of q are stored as in Q2_K; bit j of byte i of the 32 bytes of hmask is the third bit of element 32 j + i. Of
// scale j, byte j % 8 of scales has four bits (below for j < 8), and byte 8 + j % 4 the upper two at 2 (j / 4).
// Definition: GGML, block_q3_K.

#include <algorithm>
#include <cmath>

#include "numerics/block_codec.h"
#include "numerics/half.h"
#include "numerics/k_search.h"

namespace dllm {
namespace q3_k {
namespace {

constexpr int kSubBlocks = 16, kSubElems = 16, kZero = 4, kZeroScale = 32;

struct Block {
  std::uint8_t hmask[kSuperBlock / 8];
  std::uint8_t qs[kSuperBlock / 4];
  std::uint8_t scales[12];
  std::uint16_t d;  ///< binary16
};
static_assert(sizeof(Block) == 110);

int unpack_scale(const std::uint8_t* scales, int j) {
  const int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
  return (low | ((scales[8 + j % 4] >> (2 * (j / 4))) & 3) << 4) - kZeroScale;
}

void pack_scale(int scale, int j, std::uint8_t* scales) {
  const int bits = scale + kZeroScale;
  scales[j % 8] = static_cast<std::uint8_t>(scales[j % 8] | (bits & 15) << (j < 8 ? 0 : 4));
  scales[8 + j % 4] = static_cast<std::uint8_t>(scales[8 + j % 4] | (bits >> 4) << (2 * (j / 4)));
}

void decode(const Block& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int j = 0; j < kSubBlocks; ++j) {
    const float scale = d * static_cast<float>(unpack_scale(block.scales, j));
    const int first = j % 2 * kSubElems, shift = j % 8 / 2 * 2;
    const std::uint8_t* qs = block.qs + j / 8 * 32 + first;
    for (int i = 0; i < kSubElems; ++i) {
      const int q = ((qs[i] >> shift) & 3) | ((block.hmask[first + i] >> (j / 2)) & 1) << 2;
      out[kSubElems * j + i] = scale * static_cast<float>(q - kZero);
    }
  }
}

int clamped(int level) { return std::clamp(level, -kZero, kZero - 1); }

/// The scale of 16 elements, weighted with x^2, and their levels in 0..7: first the grid on which the largest element
/// is -4, then, up to five times, each level in turn is changed if that removes more of the error.
float fit(const float* x, int levels[kSubElems]) {
  const float extreme = signed_max(x, kSubElems);
  if (!(std::fabs(extreme) >= kZeroBelow)) {
    for (int i = 0; i < kSubElems; ++i) levels[i] = 0;
    return 0.0f;
  }
  const float inverse = -static_cast<float>(kZero) / extreme;
  float sum_lx = 0.0f, sum_ll = 0.0f;
  for (int i = 0; i < kSubElems; ++i) {
    levels[i] = clamped(nearest_small(inverse * x[i]));
    const float weight = x[i] * x[i], level = static_cast<float>(levels[i]);
    sum_lx += weight * x[i] * level;
    sum_ll += weight * level * level;
  }
  for (int round = 0; round < 5; ++round) {
    bool changed = false;
    for (int i = 0; i < kSubElems; ++i) {
      const float weight = x[i] * x[i], level = static_cast<float>(levels[i]);
      float lx = sum_lx - weight * x[i] * level;
      if (!(lx > 0.0f)) continue;
      float ll = sum_ll - weight * level * level;
      const int other = clamped(nearest_small(x[i] * ll / lx));
      if (other == levels[i]) continue;
      const float candidate = static_cast<float>(other);
      lx += weight * x[i] * candidate;
      ll += weight * candidate * candidate;
      if (!(ll > 0.0f && lx * lx * sum_ll > sum_lx * sum_lx * ll)) continue;
      levels[i] = other, sum_lx = lx, sum_ll = ll;
      changed = true;
    }
    if (!changed) break;
  }
  for (int i = 0; i < kSubElems; ++i) levels[i] += kZero;
  return sum_ll > 0.0f ? sum_lx / sum_ll : 0.0f;
}

/// `levels` are those of the fits, for sub-blocks whose scale is zero.
Block round_elements(const float* x, float d, const int* scales, const int* levels) {
  Block block{};
  block.d = f32_to_f16(d);
  for (int j = 0; j < kSubBlocks; ++j) {
    pack_scale(scales[j], j, block.scales);
    const float scale = f16_to_f32(block.d) * static_cast<float>(scales[j]);
    const int first = j % 2 * kSubElems, shift = j % 8 / 2 * 2;
    for (int i = 0; i < kSubElems; ++i) {
      // Where a scale rounds to zero, the levels do not matter; we keep those of the fit, as GGML does.
      int q = levels[kSubElems * j + i];
      if (scale != 0.0f) q = nearest_level(x[kSubElems * j + i] / scale, -kZero, kZero - 1) + kZero;
      std::uint8_t &low = block.qs[j / 8 * 32 + first + i], &high = block.hmask[first + i];
      low = static_cast<std::uint8_t>(low | (q & 3) << shift);
      high = static_cast<std::uint8_t>(high | (q >> 2) << (j / 2));
    }
  }
  return block;
}

Block encode(const float* x) {
  int levels[kSuperBlock], chosen[kSubBlocks];
  float scales[kSubBlocks], extreme = 0.0f;
  for (int j = 0; j < kSubBlocks; ++j) {
    scales[j] = fit(x + kSubElems * j, levels + kSubElems * j);
    if (std::fabs(scales[j]) > std::fabs(extreme)) extreme = scales[j];
  }
  // The scale of largest magnitude becomes -32 exactly. Without one GGML writes no scales, which are -32 then.
  const float inverse = extreme != 0.0f ? -static_cast<float>(kZeroScale) / extreme : 0.0f;
  for (int j = 0; j < kSubBlocks; ++j)
    chosen[j] = extreme != 0.0f ? nearest_level(inverse * scales[j], -kZeroScale, kZeroScale - 1) : -kZeroScale;
  return round_elements(x, reciprocal_or_zero(inverse), chosen, levels);
}

Block encode_weighted(const float* x, const float* weights) {
  SymmetricFit fits[kSubBlocks];
  fit_symmetric(x, fits, kZero, weights);
  float scales[kSubBlocks], sums[kSubBlocks];
  int levels[kSuperBlock], chosen[kSubBlocks];
  for (int j = 0; j < kSubBlocks; ++j) {
    scales[j] = fits[j].scale, sums[j] = 0.0f;
    for (int i = kSubElems * j; i < kSubElems * (j + 1); ++i) {
      sums[j] += weights[i];
      levels[i] = level_of(fits[j], x[i], kZero);
    }
  }
  const SymmetricFit all = fit_symmetric_block(scales, kSubBlocks, kZeroScale, sums);
  for (int j = 0; j < kSubBlocks; ++j) chosen[j] = level_of(all, scales[j], kZeroScale) - kZeroScale;
  return round_elements(x, all.scale, chosen, levels);
}

}  // namespace
}  // namespace q3_k

extern constexpr Codec kQ3_KCodec =
    with_weights<q3_k::Block, kSuperBlock, q3_k::encode_weighted, weigh_by_block<kSuperBlock, 2>>(
        make_codec<q3_k::Block, kSuperBlock, q3_k::decode, q3_k::encode>(TensorType::kQ3_K, "Q3_K"));

}  // namespace dllm
