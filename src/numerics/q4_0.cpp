// Q4_0: x = d * (q - 8), 32 elements, q in 0..15. Byte j holds element j in its low and j + 16 in its high nibble.
// Definition: GGML, block_q4_0.

#include "numerics/block_codec.h"
#include "numerics/half.h"
#include "numerics/k_search.h"

namespace dllm {
namespace q4_0 {
namespace {

constexpr int kElems = 32, kHalf = kElems / 2;

struct Block {
  std::uint16_t d;  ///< binary16
  std::uint8_t qs[kHalf];
};
static_assert(sizeof(Block) == 18);

void decode(const Block& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int j = 0; j < kHalf; ++j) {
    out[j] = d * static_cast<float>((block.qs[j] & 15) - 8);
    out[j + kHalf] = d * static_cast<float>((block.qs[j] >> 4) - 8);
  }
}

Block encode(const float* x) {
  // The element of largest magnitude becomes exactly -8: the grid has one more step on the negative side, and the sign
  // of d puts that side where it is needed. As in GGML, levels use the unrounded scale.
  const float d = signed_max(x, kElems) / -8.0f;
  const float inverse = reciprocal_or_zero(d);
  Block block;
  block.d = f32_to_f16(d);
  for (int j = 0; j < kHalf; ++j) {
    const unsigned low = truncate_level(x[j] * inverse + 8.5f, 15);
    const unsigned high = truncate_level(x[j + kHalf] * inverse + 8.5f, 15);
    block.qs[j] = static_cast<std::uint8_t>(low | high << 4);
  }
  return block;
}

Block encode_weighted(const float* x, const float* weights) {
  const SymmetricFit fit = fit_symmetric_block(x, kElems, 8, weights);
  Block block;
  block.d = f32_to_f16(fit.scale);
  for (int j = 0; j < kHalf; ++j)
    block.qs[j] = static_cast<std::uint8_t>(level_of(fit, x[j], 8) | level_of(fit, x[j + kHalf], 8) << 4);
  return block;
}

}  // namespace
}  // namespace q4_0

extern constexpr Codec kQ4_0Codec =
    with_weights<q4_0::Block, q4_0::kElems, q4_0::encode_weighted, weigh_by_row<q4_0::kElems>>(
        make_codec<q4_0::Block, q4_0::kElems, q4_0::decode, q4_0::encode>(TensorType::kQ4_0, "Q4_0"));

}  // namespace dllm
