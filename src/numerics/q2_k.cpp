// Q2_K: 256 elements, x = d * scale[j] * q - dmin * min[j] for the j-th 16, q in 0..3, scales and minima of four bits.
// In each half of 128 elements, byte i of 32 bytes of qs holds elements i, i + 32, i + 64, i + 96, from the low bits
// up. Definition: GGML, block_q2_K.

#include "numerics/block_codec.h"
#include "numerics/half.h"
#include "numerics/k_scales.h"

namespace dllm {
namespace q2_k {
namespace {

constexpr AffineCandidates kCandidates{.top = 3, .first = -0.5f, .step = 0.1f, .steps = 15};
constexpr int kSubBlocks = 16, kSubElems = 16, kTopScale = 15;

struct Block {
  std::uint8_t scales[kSubBlocks];  ///< minimum above scale
  std::uint8_t qs[kSuperBlock / 4];
  std::uint16_t d;     ///< binary16
  std::uint16_t dmin;  ///< binary16
};
static_assert(sizeof(Block) == 84);

void decode(const Block& block, float* out) {
  const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
  for (int j = 0; j < kSubBlocks; ++j) {
    const float scale = d * static_cast<float>(block.scales[j] & 15);
    const float min = dmin * static_cast<float>(block.scales[j] >> 4);
    const std::uint8_t* qs = block.qs + j / 8 * 32 + j % 2 * kSubElems;
    const int shift = j % 8 / 2 * 2;
    for (int i = 0; i < kSubElems; ++i) out[kSubElems * j + i] = scale * static_cast<float>((qs[i] >> shift) & 3) - min;
  }
}

Block round_elements(const float* x, const AffineFit* fits, const BlockScales& chosen) {
  Block block{};
  block.d = f32_to_f16(chosen.d);
  block.dmin = f32_to_f16(chosen.dmin);
  for (int j = 0; j < kSubBlocks; ++j) {
    block.scales[j] = static_cast<std::uint8_t>(chosen.scale[j] | chosen.min[j] << 4);
    const float scale = f16_to_f32(block.d) * static_cast<float>(chosen.scale[j]);
    const float min = f16_to_f32(block.dmin) * static_cast<float>(chosen.min[j]);
    std::uint8_t* qs = block.qs + j / 8 * 32 + j % 2 * kSubElems;
    const int shift = j % 8 / 2 * 2;
    for (int i = 0; i < kSubElems; ++i) {
      const int level = level_on_grid(x[kSubElems * j + i], scale, min, fits[j], kCandidates.top);
      qs[i] = static_cast<std::uint8_t>(qs[i] | level << shift);
    }
  }
  return block;
}

Block encode(const float* x) {
  AffineFit fits[kSubBlocks];
  fit_affine_16(x, kCandidates, fits);
  return round_elements(x, fits, choose_scales(fits, kTopScale));
}

Block encode_weighted(const float* x, const float* weights) {
  AffineFit fits[kSubBlocks];
  fit_affine_16(x, weighted_candidates(kCandidates.top), fits, weights);
  return round_elements(x, fits, choose_scales(fits, kTopScale, weights));
}

}  // namespace
}  // namespace q2_k

extern constexpr Codec kQ2_KCodec =
    with_weights<q2_k::Block, kSuperBlock, q2_k::encode_weighted, weigh_by_block<kSuperBlock, 1>>(
        make_codec<q2_k::Block, kSuperBlock, q2_k::decode, q2_k::encode>(TensorType::kQ2_K, "Q2_K"));

}  // namespace dllm
