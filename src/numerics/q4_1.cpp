// Q4_1: x = d * q + m, 32 elements, q in 0..15; nibbles as in Q4_0. Definition: GGML, block_q4_1.

#include "numerics/block_codec.h"
#include "numerics/half.h"
#include "numerics/k_search.h"

namespace dllm {
namespace q4_1 {
namespace {

constexpr int kElems = 32, kHalf = kElems / 2, kTop = 15;

struct Block {
  std::uint16_t d;  ///< binary16
  std::uint16_t m;  ///< binary16, the block's minimum
  std::uint8_t qs[kHalf];
};
static_assert(sizeof(Block) == 20);

void decode(const Block& block, float* out) {
  const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
  for (int j = 0; j < kHalf; ++j) {
    out[j] = d * static_cast<float>(block.qs[j] & 15) + m;
    out[j + kHalf] = d * static_cast<float>(block.qs[j] >> 4) + m;
  }
}

Block encode(const float* x) {
  const auto [min, max] = extent(x, kElems);
  const float d = (max - min) / kTop;
  const float inverse = reciprocal_or_zero(d);
  Block block;
  block.d = f32_to_f16(d);
  block.m = f32_to_f16(min);
  for (int j = 0; j < kHalf; ++j) {
    const unsigned low = truncate_level((x[j] - min) * inverse + 0.5f, kTop);
    const unsigned high = truncate_level((x[j + kHalf] - min) * inverse + 0.5f, kTop);
    block.qs[j] = static_cast<std::uint8_t>(low | high << 4);
  }
  return block;
}

Block encode_weighted(const float* x, const float* weights) {
  const AffineFit fit = fit_affine_block(x, kTop, weights);
  Block block;
  block.d = f32_to_f16(fit.scale);
  block.m = f32_to_f16(-fit.min);
  for (int j = 0; j < kHalf; ++j)
    block.qs[j] = static_cast<std::uint8_t>(level_of(fit, x[j], kTop) | level_of(fit, x[j + kHalf], kTop) << 4);
  return block;
}

}  // namespace
}  // namespace q4_1

extern constexpr Codec kQ4_1Codec =
    with_weights<q4_1::Block, q4_1::kElems, q4_1::encode_weighted, weigh_by_row<q4_1::kElems>>(
        make_codec<q4_1::Block, q4_1::kElems, q4_1::decode, q4_1::encode>(TensorType::kQ4_1, "Q4_1"));

}  // namespace dllm
