// NVFP4: 64 elements of E2M1 in four groups of 16, each with a scale in E4M3 without a sign: x = s * v, v in {0, 0.5,
// 1, 1.5, 2, 3, 4, 6} with a sign. Byte j of a group's eight has element j below and element j + 8 above. Definition:
// GGML, block_nvfp4. Files may have one more scale per matrix, a tensor of its own ("scale"; model/scaled_products.h).
//
// GGML stores twice the element values, so that they are integers, and half the scale; products are the same.

#include <array>

#include "numerics/block_codec.h"
#include "numerics/mx.h"

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

/// Half the value of a scale. The code for NaN is zero, and the sign is not read, as in GGML: with a sign, the code of
/// NaN is the number that its bits would be, 480.
float half_scale(std::uint8_t code) {
  static const std::array<float, 256> all = [] {
    std::array<float, 256> halves{};
    for (std::uint32_t c = 0; c < halves.size(); ++c)
      halves[c] = static_cast<float>(mx_fixed(MxElement::kE4M3, c & 127)) * 0x1.0p-10f;  // steps of 2^-9
    halves[kNan | 128] = 240.0f;
    return halves;
  }();
  return all[code];
}

void decode(const Block& block, float* out) {
  for (int g = 0; g < kGroups; ++g) {
    const float d = half_scale(block.scales[g]);
    for (int j = 0; j < kGroupBytes; ++j) {
      const std::uint8_t pair = block.qs[kGroupBytes * g + j];
      out[kGroup * g + j] = d * kE2m1Doubled[pair & 15];
      out[kGroup * g + j + kGroupBytes] = d * kE2m1Doubled[pair >> 4];
    }
  }
}

/// To nearest, ties away from zero. As in GGML, every scale that rounds to 256 or more is stored as the
/// largest code, 448.
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

/// A group whose scale is zero has codes of zero.
unsigned code_of(float x, float d) { return d == 0.0f ? 0 : nearest_e2m1(x, d); }

Block encode(const float* x) {
  Block block;
  for (int g = 0; g < kGroups; ++g, x += kGroup) {
    block.scales[g] = scale_code(std::fabs(signed_max(x, kGroup)) / 6.0f);
    const float d = half_scale(block.scales[g]);
    for (int j = 0; j < kGroupBytes; ++j)
      block.qs[kGroupBytes * g + j] = static_cast<std::uint8_t>(code_of(x[j], d) | code_of(x[j + kGroupBytes], d) << 4);
  }
  return block;
}

}  // namespace
}  // namespace nvfp4

extern constexpr Codec kNVFP4Codec =
    make_codec<nvfp4::Block, nvfp4::kElems, nvfp4::decode, nvfp4::encode>(TensorType::kNVFP4, "NVFP4");

}  // namespace dllm
