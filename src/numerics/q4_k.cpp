// Q4_K: 256 elements, x = d * scale[j] * q - dmin * min[j] for the j-th 32, q in 0..15. Each 32 bytes of qs hold 64
// elements: the first 32 in the low nibbles, the next 32 in the high ones. Definition: GGML, block_q4_K.

#include "numerics/block_codec.h"
#include "numerics/half.h"
#include "numerics/k_scales.h"

namespace dllm {
namespace q4_k {
namespace {

constexpr AffineCandidates kCandidates{.top = 15, .first = -1.0f, .step = 0.1f, .steps = 20};

struct Block {
  std::uint16_t d;     ///< binary16
  std::uint16_t dmin;  ///< binary16
  std::uint8_t scales[12];
  std::uint8_t qs[kSuperBlock / 2];
};
static_assert(sizeof(Block) == 144);

void decode(const Block& block, float* out) {
  const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
  for (int j = 0; j < 8; ++j) {
    const SubScale sub = unpack_sub_scale(block.scales, j);
    const float scale = d * static_cast<float>(sub.scale), min = dmin * static_cast<float>(sub.min);
    const std::uint8_t* qs = block.qs + j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int i = 0; i < 32; ++i) out[32 * j + i] = scale * static_cast<float>((qs[i] >> shift) & 15) - min;
  }
}

Block pack(const AffineSuperBlock& fitted) {
  Block block;
  block.d = fitted.d;
  block.dmin = fitted.dmin;
  std::memcpy(block.scales, fitted.scales, sizeof(block.scales));
  for (int i = 0; i < kSuperBlock / 2; ++i) {
    const std::uint8_t* levels = fitted.levels + i / 32 * 64 + i % 32;
    block.qs[i] = static_cast<std::uint8_t>(levels[0] | levels[32] << 4);
  }
  return block;
}

Block encode(const float* x) { return pack(quantize_affine(x, kCandidates)); }
Block encode_weighted(const float* x, const float* weights) {
  return pack(quantize_affine(x, kCandidates.top, weights));
}

}  // namespace
}  // namespace q4_k

extern constexpr Codec kQ4_KCodec =
    with_weights<q4_k::Block, kSuperBlock, q4_k::encode_weighted, weigh_by_block<kSuperBlock, 2>>(
        make_codec<q4_k::Block, kSuperBlock, q4_k::decode, q4_k::encode>(TensorType::kQ4_K, "Q4_K"));

}  // namespace dllm
