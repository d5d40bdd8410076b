// Q6_K: 256 elements, x = d * scale[j] * (q - 32) for the j-th 16, q in 0..63, scales signed bytes. In each half of 128
// elements, 64 bytes of ql hold the low nibbles of elements 0-63 (low) and 64-127 (high), and byte i of 32 bytes of qh
// the upper two bits of elements i, i + 32, i + 64, i + 96. Definition: GGML, block_q6_K.

#include <algorithm>
#include <cmath>

#include "numerics/block_codec.h"
#include "numerics/half.h"
#include "numerics/k_search.h"

namespace dllm {
namespace q6_k {
namespace {

constexpr int kSubBlocks = 16, kSubElems = 16;

struct Block {
  std::uint8_t ql[kSuperBlock / 2];
  std::uint8_t qh[kSuperBlock / 4];
  std::int8_t scales[kSubBlocks];
  std::uint16_t d;  ///< binary16
};
static_assert(sizeof(Block) == 210);

void decode(const Block& block, float* out) {
  const float d = f16_to_f32(block.d);
  float scales[kSubBlocks];
  for (int j = 0; j < kSubBlocks; ++j) scales[j] = d * static_cast<float>(block.scales[j]);
  for (int group = 0; group < 8; ++group) {  // 32 elements that share a shift
    const int half = group / 4, quarter = group % 4;
    const std::uint8_t* ql = block.ql + half * 64 + quarter % 2 * 32;
    const std::uint8_t* qh = block.qh + half * 32;
    for (int i = 0; i < 32; ++i) {
      const int level = ((ql[i] >> (quarter / 2 * 4)) & 15) | ((qh[i] >> (2 * quarter)) & 3) << 4;
      out[32 * group + i] = scales[2 * group + i / 16] * static_cast<float>(level - 32);
    }
  }
}

void pack_levels(const std::uint8_t* levels, Block& block) {
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t* q = levels + 128 * half;
    for (int i = 0; i < 64; ++i)
      block.ql[64 * half + i] = static_cast<std::uint8_t>((q[i] & 15) | (q[i + 64] & 15) << 4);
    for (int i = 0; i < 32; ++i)
      block.qh[32 * half + i] = static_cast<std::uint8_t>((q[i] >> 4) | (q[i + 32] >> 4) << 2 | (q[i + 64] >> 4) << 4 |
                                                          (q[i + 96] >> 4) << 6);
  }
}

Block encode_weighted(const float* x, const float* weights) {
  SymmetricFit fits[kSubBlocks];
  fit_symmetric(x, fits, 32, weights);
  float extreme = 0.0f;
  for (const SymmetricFit& fit : fits)
    if (std::fabs(fit.scale) > std::fabs(extreme)) extreme = fit.scale;
  Block block{};
  if (std::fabs(extreme) < kZeroBelow) return block;

  // The scale of largest magnitude becomes -128 exactly, as the largest element of Q4_0 becomes -8.
  const float inverse = -128.0f / extreme;
  block.d = f32_to_f16(1.0f / inverse);
  std::uint8_t levels[kSuperBlock];
  for (int j = 0; j < kSubBlocks; ++j) {
    block.scales[j] = static_cast<std::int8_t>(nearest_level(inverse * fits[j].scale, -128, 127));
    const float scale = f16_to_f32(block.d) * static_cast<float>(block.scales[j]);
    for (int i = j * kSubElems; i < (j + 1) * kSubElems; ++i) {
      // Where a scale rounds to zero, the levels do not matter; we keep those of the fit, as GGML does.
      const float level = scale != 0.0f ? x[i] / scale : fits[j].inverse != 0.0f ? x[i] * fits[j].inverse : -32.0f;
      levels[i] = static_cast<std::uint8_t>(nearest_level(level, -32, 31) + 32);
    }
  }
  pack_levels(levels, block);
  return block;
}

Block encode(const float* x) { return encode_weighted(x, nullptr); }

/// The importance itself, in this format alone.
void weigh(const float*, const float* importance, float, float* out) { std::copy_n(importance, kSuperBlock, out); }

}  // namespace
}  // namespace q6_k

extern constexpr Codec kQ6_KCodec = with_weights<q6_k::Block, kSuperBlock, q6_k::encode_weighted, q6_k::weigh>(
    make_codec<q6_k::Block, kSuperBlock, q6_k::decode, q6_k::encode>(TensorType::kQ6_K, "Q6_K"));

}  // namespace dllm
