// NVFP4: 64 elements of E2M1 in four groups of 16, each with a scale in E4M3 without a sign: x = s * v, v in {0, 0.5,
// 1, 1.5, 2, 3, 4, 6} with a sign. Byte j of a group's eight has element j below and element j + 8 above. Definition:
// GGML, block_nvfp4. Files may have one more scale per matrix, a tensor of its own ("scale"; model/scaled_products.h).
//
// GGML stores twice the element values, so that they are integers, and half the scale; products are the same.

#include "numerics/block_codec.h"

namespace dllm {
namespace nvfp4 {
namespace {

constexpr int kElems = 64, kGroup = 16, kGroups = kElems / kGroup, kGroupBytes = kGroup / 2;
constexpr std::uint8_t kNan = 0x7f, kLargest = 0x7e;

struct Block {
  std::uint8_t scales[kGroups];
  std::uint8_t qs[kElems / 2];
};
static_assert(sizeof(Block) == 36);

constexpr float kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// Half the value of a scale. The code for NaN is zero, and the sign is not read, as in GGML.
float half_scale(std::uint8_t code) {
  if (code == kNan) return 0.0f;
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1.0p-10f;
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127 - 8) << 23 |
                              static_cast<std::uint32_t>(mantissa) << 20);
}

void decode(const Block& block, float* out) {
  for (int g = 0; g < kGroups; ++g) {
    const float d = half_scale(block.scales[g]);
    for (int j = 0; j < kGroupBytes; ++j) {
      const std::uint8_t pair = block.qs[kGroupBytes * g + j];
      out[kGroup * g + j] = d * kDoubled[pair & 15];
      out[kGroup * g + j + kGroupBytes] = d * kDoubled[pair >> 4];
    }
  }
}

/// To nearest, ties away from zero. GGML clamps to the largest value from 256 on, which is below it.
std::uint8_t scale_code(float x) {
  if (!(x > 0.0f)) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const int exponent = static_cast<int>(bits >> 23) - 127 + 7;
  if (exponent <= 0) return truncate_level(x * 512.0f + 0.5f, 7);
  if (exponent >= 15) return kLargest;
  // A carry of the mantissa goes into the exponent.
  const auto code = static_cast<std::uint32_t>(exponent) << 3 | (bits >> 20 & 7);
  const std::uint32_t rounded = code + (bits >> 19 & 1);
  return rounded >= 15 << 3 ? kLargest : static_cast<std::uint8_t>(rounded);
}

/// Nearest value; ties go to the smaller magnitude, and what rounds to zero gives +0, as in GGML's linear search.
unsigned nearest_code(float x, float d) {
  constexpr float kMidpoints[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};
  if (d == 0.0f) return 0;
  const float magnitude = std::fabs(x);
  unsigned code = 0;
  for (const float midpoint : kMidpoints) code += magnitude > midpoint * d ? 1u : 0u;
  return code != 0 && x < 0.0f ? code | 8u : code;
}

Block encode(const float* x) {
  Block block;
  for (int g = 0; g < kGroups; ++g, x += kGroup) {
    block.scales[g] = scale_code(std::fabs(signed_max(x, kGroup)) / 6.0f);
    const float d = half_scale(block.scales[g]);
    for (int j = 0; j < kGroupBytes; ++j)
      block.qs[kGroupBytes * g + j] =
          static_cast<std::uint8_t>(nearest_code(x[j], d) | nearest_code(x[j + kGroupBytes], d) << 4);
  }
  return block;
}

}  // namespace
}  // namespace nvfp4

extern constexpr Codec kNVFP4Codec =
    make_codec<nvfp4::Block, nvfp4::kElems, nvfp4::decode, nvfp4::encode>(TensorType::kNVFP4, "NVFP4");

}  // namespace dllm
