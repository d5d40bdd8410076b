// Q5_K: as Q4_K with q in 0..31. Bit j of qh[i] is the fifth bit of element i of sub-block j. Definition: GGML,
// block_q5_K.

#include "numerics/block_codec.h"
#include "numerics/half.h"
#include "numerics/k_scales.h"

namespace dllm {
namespace q5_k {
namespace {

constexpr AffineCandidates kCandidates{.top = 31, .first = -0.5f, .step = 0.1f, .steps = 15};

struct Block {
  std::uint16_t d;     ///< binary16
  std::uint16_t dmin;  ///< binary16
  std::uint8_t scales[12];
  std::uint8_t qh[kSuperBlock / 8];
  std::uint8_t qs[kSuperBlock / 2];
};
static_assert(sizeof(Block) == 176);

void decode(const Block& block, float* out) {
  const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
  for (int j = 0; j < 8; ++j) {
    const SubScale sub = unpack_sub_scale(block.scales, j);
    const float scale = d * static_cast<float>(sub.scale), min = dmin * static_cast<float>(sub.min);
    const std::uint8_t* qs = block.qs + j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int level = ((qs[i] >> shift) & 15) | ((block.qh[i] >> j) & 1) << 4;
      out[32 * j + i] = scale * static_cast<float>(level) - min;
    }
  }
}

Block pack(const AffineSuperBlock& fitted) {
  Block block;
  block.d = fitted.d;
  block.dmin = fitted.dmin;
  std::memcpy(block.scales, fitted.scales, sizeof(block.scales));
  for (int i = 0; i < kSuperBlock / 2; ++i) {
    const std::uint8_t* levels = fitted.levels + i / 32 * 64 + i % 32;
    block.qs[i] = static_cast<std::uint8_t>((levels[0] & 15) | (levels[32] & 15) << 4);
  }
  for (int i = 0; i < kSuperBlock / 8; ++i) {
    unsigned bits = 0;
    for (int j = 0; j < 8; ++j) bits |= static_cast<unsigned>(fitted.levels[32 * j + i] >> 4) << j;
    block.qh[i] = static_cast<std::uint8_t>(bits);
  }
  return block;
}

Block encode(const float* x) { return pack(quantize_affine(x, kCandidates)); }
Block encode_weighted(const float* x, const float* weights) {
  return pack(quantize_affine(x, kCandidates.top, weights));
}

}  // namespace
}  // namespace q5_k

extern constexpr Codec kQ5_KCodec =
    with_weights<q5_k::Block, kSuperBlock, q5_k::encode_weighted, weigh_by_block<kSuperBlock, 2>>(
        make_codec<q5_k::Block, kSuperBlock, q5_k::decode, q5_k::encode>(TensorType::kQ5_K, "Q5_K"));

}  // namespace dllm
