// Q5_0: x = d * (q - 16), 32 elements, q in 0..31. Low four bits as in Q4_0; bit i of qh is the fifth bit of element i.
// Definition: GGML, block_q5_0.

#include "numerics/block_codec.h"
#include "numerics/half.h"
#include "numerics/k_search.h"

namespace dllm {
namespace q5_0 {
namespace {

constexpr int kElems = 32, kHalf = kElems / 2;

struct Block {
  std::uint16_t d;     ///< binary16
  std::uint8_t qh[4];  ///< bytes, because 32-bit alignment would pad the block
  std::uint8_t qs[kHalf];
};
static_assert(sizeof(Block) == 22);

void decode(const Block& block, float* out) {
  const float d = f16_to_f32(block.d);
  const std::uint32_t fifth = std::bit_cast<std::uint32_t>(block.qh);
  for (int j = 0; j < kHalf; ++j) {
    const int low = static_cast<int>((block.qs[j] & 15u) | ((fifth >> j) & 1u) << 4);
    const int high = static_cast<int>((block.qs[j] >> 4) | ((fifth >> (j + kHalf)) & 1u) << 4);
    out[j] = d * static_cast<float>(low - 16);
    out[j + kHalf] = d * static_cast<float>(high - 16);
  }
}

Block encode(const float* x) {
  const float d = signed_max(x, kElems) / -16.0f;  // the extreme becomes -16, see Q4_0
  const float inverse = reciprocal_or_zero(d);
  Block block;
  block.d = f32_to_f16(d);
  pack_five_bits([&](int i) { return truncate_level(x[i] * inverse + 16.5f, 31); }, block.qh, block.qs);
  return block;
}

Block encode_weighted(const float* x, const float* weights) {
  const SymmetricFit fit = fit_symmetric_block(x, kElems, 16, weights);
  Block block;
  block.d = f32_to_f16(fit.scale);
  pack_five_bits([&](int i) { return level_of(fit, x[i], 16); }, block.qh, block.qs);
  return block;
}

}  // namespace
}  // namespace q5_0

extern constexpr Codec kQ5_0Codec =
    with_weights<q5_0::Block, q5_0::kElems, q5_0::encode_weighted, weigh_by_row<q5_0::kElems>>(
        make_codec<q5_0::Block, q5_0::kElems, q5_0::decode, q5_0::encode>(TensorType::kQ5_0, "Q5_0"));

}  // namespace dllm
