// Q5_1: x = d * q + m, 32 elements, q in 0..31; bits as in Q5_0. Definition: GGML, block_q5_1.

#include "numerics/block_codec.h"
#include "numerics/half.h"
#include "numerics/k_search.h"

namespace dllm {
namespace q5_1 {
namespace {

constexpr int kElems = 32, kHalf = kElems / 2, kTop = 31;

struct Block {
  std::uint16_t d;  ///< binary16
  std::uint16_t m;  ///< binary16, the block's minimum
  std::uint8_t qh[4];
  std::uint8_t qs[kHalf];
};
static_assert(sizeof(Block) == 24);

void decode(const Block& block, float* out) {
  const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
  const std::uint32_t fifth = std::bit_cast<std::uint32_t>(block.qh);
  for (int j = 0; j < kHalf; ++j) {
    const int low = static_cast<int>((block.qs[j] & 15u) | ((fifth >> j) & 1u) << 4);
    const int high = static_cast<int>((block.qs[j] >> 4) | ((fifth >> (j + kHalf)) & 1u) << 4);
    out[j] = d * static_cast<float>(low) + m;
    out[j + kHalf] = d * static_cast<float>(high) + m;
  }
}

Block encode(const float* x) {
  const Extent range = extent(x, kElems);
  const float d = (range.max - range.min) / kTop;
  const float inverse = reciprocal_or_zero(d);
  Block block;
  block.d = f32_to_f16(d);
  block.m = f32_to_f16(range.min);
  pack_five_bits([&](int i) { return truncate_level((x[i] - range.min) * inverse + 0.5f, kTop); }, block.qh, block.qs);
  return block;
}

Block encode_weighted(const float* x, const float* weights) {
  const AffineFit fit = fit_affine_block(x, kTop, weights);
  Block block;
  block.d = f32_to_f16(fit.scale);
  block.m = f32_to_f16(-fit.min);
  pack_five_bits([&](int i) { return level_of(fit, x[i], kTop); }, block.qh, block.qs);
  return block;
}

}  // namespace
}  // namespace q5_1

extern constexpr Codec kQ5_1Codec =
    with_weights<q5_1::Block, q5_1::kElems, q5_1::encode_weighted, weigh_by_row<q5_1::kElems>>(
        make_codec<q5_1::Block, q5_1::kElems, q5_1::decode, q5_1::encode>(TensorType::kQ5_1, "Q5_1"));

}  // namespace dllm
