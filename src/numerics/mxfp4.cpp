// MXFP4: 32 elements of E2M1 that share one E8M0 scale: x = 2^(e - 127) * v, v in {0, 0.5, 1, 1.5, 2, 3, 4, 6} with a
// sign; nibbles as in Q4_0. Definition: OCP Microscaling Formats 1.0 and GGML, block_mxfp4.
//
// GGML stores twice the element values, so that they are integers, and half the scale. The products are the same,
// except for the two smallest scales and the NaN code 255, where GGML's arithmetic is the definition here.

#include "numerics/block_codec.h"

namespace dllm {
namespace mxfp4 {
namespace {

constexpr int kElems = 32, kHalf = kElems / 2;

struct Block {
  std::uint8_t e;
  std::uint8_t qs[kHalf];
};
static_assert(sizeof(Block) == 17);

/// 2^(e - 128), half the scale; a subnormal float for e < 2. 255 (NaN by OCP) is 2^127.
float half_scale(std::uint8_t e) {
  const std::uint32_t bits = e < 2 ? 0x00200000u << e : (std::uint32_t{e} - 1u) << 23;
  return std::bit_cast<float>(bits);
}

void decode(const Block& block, float* out) {
  const float d = half_scale(block.e);
  for (int j = 0; j < kHalf; ++j) {
    out[j] = kE2m1Doubled[block.qs[j] & 15] * d;
    out[j + kHalf] = kE2m1Doubled[block.qs[j] >> 4] * d;
  }
}

Block encode(const float* x) {
  // e = floor(log2(max)) - 2 + 127: the largest element lands in [4, 8), 6 being the largest value. The exponent is
  // read from the bits; GGML's floorf(log2f(max)) differs where log2f rounds up to an integer, 1 ulp below a power of
  // two.
  const float extreme = signed_max(x, kElems);
  const std::uint32_t biased = (std::bit_cast<std::uint32_t>(extreme) >> 23) & 0xffu;
  Block block;
  block.e = static_cast<std::uint8_t>(biased > 2 ? biased - 2 : 0);
  const float d = half_scale(block.e);
  for (int j = 0; j < kHalf; ++j)
    block.qs[j] = static_cast<std::uint8_t>(nearest_e2m1(x[j], d) | nearest_e2m1(x[j + kHalf], d) << 4);
  return block;
}

}  // namespace
}  // namespace mxfp4

extern constexpr Codec kMXFP4Codec =
    make_codec<mxfp4::Block, mxfp4::kElems, mxfp4::decode, mxfp4::encode>(TensorType::kMXFP4, "MXFP4");

}  // namespace dllm
