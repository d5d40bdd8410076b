// IQ4_NL: 32 elements, x = d * value[q] with kIq4Values; nibbles as in Q4_0. IQ4_XS: 256 elements, x = d * (scale[j] -
// 32) * value[q] for the j-th 32, scales of six bits: four in the nibbles of scales_l, two in scales_h. Definitions:
// GGML, block_iq4_nl and block_iq4_xs.

#include "numerics/iq4.h"

#include <cmath>

#include "numerics/block_codec.h"
#include "numerics/half.h"
#include "numerics/k_search.h"

namespace dllm {
namespace iq4 {
namespace {

constexpr int kElems = 32, kHalf = kElems / 2, kSubBlocks = kSuperBlock / kElems, kZeroScale = 32;

struct SmallBlock {
  std::uint16_t d;  ///< binary16
  std::uint8_t qs[kHalf];
};
static_assert(sizeof(SmallBlock) == 18);

struct Block {
  std::uint16_t d;  ///< binary16
  std::uint16_t scales_h;
  std::uint8_t scales_l[kSubBlocks / 2];
  std::uint8_t qs[kSuperBlock / 2];
};
static_assert(sizeof(Block) == 136);

void decode_values(float scale, const std::uint8_t* qs, float* out) {
  for (int i = 0; i < kHalf; ++i) {
    out[i] = scale * static_cast<float>(kIq4Values[qs[i] & 15]);
    out[i + kHalf] = scale * static_cast<float>(kIq4Values[qs[i] >> 4]);
  }
}

void decode(const SmallBlock& block, float* out) { decode_values(f16_to_f32(block.d), block.qs, out); }

void decode(const Block& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int j = 0; j < kSubBlocks; ++j) {
    const int scale = ((block.scales_l[j / 2] >> (j % 2 * 4)) & 15) | ((block.scales_h >> (2 * j)) & 3) << 4;
    decode_values(d * static_cast<float>(scale - kZeroScale), block.qs + kHalf * j, out + kElems * j);
  }
}

/// The nearest value; a tie goes up. NaN gives the last one.
int nearest_code(float x) {
  int code = 0;
  for (int i = 1; i < 16; ++i)
    code += x - static_cast<float>(kIq4Values[i - 1]) < static_cast<float>(kIq4Values[i]) - x ? 0 : 1;
  return code;
}

/// x^2, where no weights are given.
void own_weights(const float* x, int count, float* out) {
  for (int i = 0; i < count; ++i) out[i] = x[i] * x[i];
}

/// The scale of 32 elements with weights: of sixteen grids, on which the largest element is near one of -127 + 7
/// to -127 - 7, or 127, the one whose least-squares scale removes most of the error.
float fit(const float* x, const float* weights) {
  const float extreme = signed_max(x, kElems);
  if (!(std::fabs(extreme) >= kZeroBelow)) return 0.0f;
  float scale = 0.0f, gain = 0.0f;
  const auto attempt = [&](float inverse, bool first) {
    float sum_vx = 0.0f, sum_vv = 0.0f;
    for (int i = 0; i < kElems; ++i) {
      const float value = static_cast<float>(kIq4Values[nearest_code(inverse * x[i])]);
      sum_vx += weights[i] * value * x[i];
      sum_vv += weights[i] * value * value;
    }
    if (sum_vv > 0.0f && (first || sum_vx * sum_vx > gain * sum_vv)) {
      scale = sum_vx / sum_vv;
      gain = scale * sum_vx;
    }
  };
  constexpr float kLowest = kIq4Values[0];
  attempt(1.0f / (-extreme / kLowest), true);
  for (int step = -7; step <= 7; ++step) attempt((static_cast<float>(step) + kLowest) / extreme, false);
  return scale;
}

void encode_values(float inverse, const float* x, std::uint8_t* qs) {
  for (int i = 0; i < kHalf; ++i)
    qs[i] = static_cast<std::uint8_t>(nearest_code(inverse * x[i]) | nearest_code(inverse * x[i + kHalf]) << 4);
}

SmallBlock encode_small_weighted(const float* x, const float* weights) {
  const float scale = fit(x, weights);
  SmallBlock block;
  block.d = f32_to_f16(scale);
  encode_values(reciprocal_or_zero(scale), x, block.qs);
  return block;
}
SmallBlock encode_small(const float* x) {
  float weights[kElems];
  own_weights(x, kElems, weights);
  return encode_small_weighted(x, weights);
}

Block encode_weighted(const float* x, const float* weights) {
  float scales[kSubBlocks], extreme = 0.0f;
  for (int j = 0; j < kSubBlocks; ++j) {
    scales[j] = fit(x + kElems * j, weights + kElems * j);
    if (std::fabs(scales[j]) > std::fabs(extreme)) extreme = scales[j];
  }
  // The scale of largest magnitude becomes -32 exactly. Codes are those of the scales before d is rounded, as in GGML.
  const float d = -extreme / kZeroScale, inverse = reciprocal_or_zero(d);
  Block block{};
  block.d = f32_to_f16(d);
  for (int j = 0; j < kSubBlocks; ++j) {
    const int level = nearest_level(inverse * scales[j], -kZeroScale, kZeroScale - 1);
    encode_values(reciprocal_or_zero(d * static_cast<float>(level)), x + kElems * j, block.qs + kHalf * j);
    const int bits = level + kZeroScale;
    block.scales_l[j / 2] = static_cast<std::uint8_t>(block.scales_l[j / 2] | (bits & 15) << (j % 2 * 4));
    block.scales_h = static_cast<std::uint16_t>(block.scales_h | (bits >> 4) << (2 * j));
  }
  return block;
}
Block encode(const float* x) {
  float weights[kSuperBlock];
  own_weights(x, kSuperBlock, weights);
  return encode_weighted(x, weights);
}

}  // namespace
}  // namespace iq4

extern constexpr Codec kIQ4_NLCodec =
    with_weights<iq4::SmallBlock, iq4::kElems, iq4::encode_small_weighted, weigh_by_block<iq4::kElems, 2>>(
        make_codec<iq4::SmallBlock, iq4::kElems, iq4::decode, iq4::encode_small>(TensorType::kIQ4_NL, "IQ4_NL"));
extern constexpr Codec kIQ4_XSCodec =
    with_weights<iq4::Block, kSuperBlock, iq4::encode_weighted, weigh_by_block<kSuperBlock, 2>>(
        make_codec<iq4::Block, kSuperBlock, iq4::decode, iq4::encode>(TensorType::kIQ4_XS, "IQ4_XS"));

}  // namespace dllm
