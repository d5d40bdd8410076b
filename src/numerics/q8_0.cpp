// Q8_0: x = d * q, 32 elements, q in -127..127. Definition: GGML, block_q8_0.

#include "numerics/block_codec.h"
#include "numerics/half.h"

namespace dllm {
namespace q8_0 {
namespace {

constexpr int kElems = 32, kTop = 127;

struct Block {
  std::uint16_t d;  ///< binary16
  std::int8_t qs[kElems];
};
static_assert(sizeof(Block) == 34);

void decode(const Block& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int j = 0; j < kElems; ++j) out[j] = d * static_cast<float>(block.qs[j]);
}

/// Rounds half away from zero like C's roundf, which is a library call without SSE4.1. Adds the float just below 0.5,
/// because 0.49999997f + 0.5f is 1. Compared once with roundf for every float from -127 to 127; the test samples them.
std::int8_t round_level(float value) {
  constexpr float kTopLevel = kTop, kJustBelowHalf = 0x1.fffffep-2f;
  const float clamped = value > -kTopLevel ? (value < kTopLevel ? value : kTopLevel) : -kTopLevel;
  return static_cast<std::int8_t>(static_cast<int>(clamped + std::copysign(kJustBelowHalf, clamped)));
}

Block encode(const float* x) {
  const float d = std::fabs(signed_max(x, kElems)) / kTop;
  const float inverse = reciprocal_or_zero(d);
  Block block;
  block.d = f32_to_f16(d);
  for (int j = 0; j < kElems; ++j) block.qs[j] = round_level(x[j] * inverse);
  return block;
}

}  // namespace
}  // namespace q8_0

extern constexpr Codec kQ8_0Codec =
    make_codec<q8_0::Block, q8_0::kElems, q8_0::decode, q8_0::encode>(TensorType::kQ8_0, "Q8_0");

}  // namespace dllm
