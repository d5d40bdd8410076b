// IQ1, IQ2 and IQ3: blocks of 256 elements whose codes are places in lists of groups (iq_grids.h), decoded only.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "numerics/block_codec.h"
#include "numerics/half.h"
#include "numerics/iq_blocks.h"

namespace dllm {
namespace iq_types {
namespace {

/// x = factor d s v. `factor` is a power of two and d s v has few bits, so that the products are exact, and equal to
/// GGML's in any order.
template <TensorType kType, int kBytes, int kGroup>
void decode(const std::byte* src, float* dst, std::int64_t count, const std::int8_t* values, float factor) {
  for (std::int64_t i = 0; i < count; i += kIqElems, src += kBytes, dst += kIqElems) {
    std::uint8_t bytes[kBytes];
    std::memcpy(bytes, src, kBytes);
    IqBlock block;
    read_iq_block(kType, bytes, block);
    std::uint16_t d;
    std::memcpy(&d, block.d, 2);
    for (int j = 0; j < kIqElems / kGroup; ++j) {
      const float scale = f16_to_f32(d) * factor * static_cast<float>(block.scale[j]);
      for (int e = kGroup * j; e < kGroup * (j + 1); ++e) dst[e] = scale * static_cast<float>(values[block.codes[e]]);
    }
  }
}

void decode_iq2_xxs(const std::byte* src, float* dst, std::int64_t count) {
  decode<TensorType::kIQ2_XXS, 66, 32>(src, dst, count, kIq2Values, 0.125f);
}
void decode_iq2_xs(const std::byte* src, float* dst, std::int64_t count) {
  decode<TensorType::kIQ2_XS, 74, 16>(src, dst, count, kIq2Values, 0.125f);
}
void decode_iq2_s(const std::byte* src, float* dst, std::int64_t count) {
  decode<TensorType::kIQ2_S, 82, 16>(src, dst, count, kIq2Values, 0.125f);
}
void decode_iq3_xxs(const std::byte* src, float* dst, std::int64_t count) {
  decode<TensorType::kIQ3_XXS, 98, 32>(src, dst, count, kIq3XxsValues, 0.25f);
}
void decode_iq3_s(const std::byte* src, float* dst, std::int64_t count) {
  decode<TensorType::kIQ3_S, 110, 32>(src, dst, count, kIq3SValues, 1.0f);
}
void decode_iq1_s(const std::byte* src, float* dst, std::int64_t count) {
  decode<TensorType::kIQ1_S, 50, 32>(src, dst, count, kIq1Values, 0.125f);
}
void decode_iq1_m(const std::byte* src, float* dst, std::int64_t count) {
  decode<TensorType::kIQ1_M, 56, 16>(src, dst, count, kIq1Values, 0.125f);
}

}  // namespace
}  // namespace iq_types

extern constexpr Codec kIQ2_XXSCodec = {TensorType::kIQ2_XXS,     "IQ2_XXS", kIqElems, 66,
                                        iq_types::decode_iq2_xxs, nullptr};
extern constexpr Codec kIQ2_XSCodec = {TensorType::kIQ2_XS, "IQ2_XS", kIqElems, 74, iq_types::decode_iq2_xs, nullptr};
extern constexpr Codec kIQ2_SCodec = {TensorType::kIQ2_S, "IQ2_S", kIqElems, 82, iq_types::decode_iq2_s, nullptr};
extern constexpr Codec kIQ3_XXSCodec = {TensorType::kIQ3_XXS,     "IQ3_XXS", kIqElems, 98,
                                        iq_types::decode_iq3_xxs, nullptr};
extern constexpr Codec kIQ3_SCodec = {TensorType::kIQ3_S, "IQ3_S", kIqElems, 110, iq_types::decode_iq3_s, nullptr};
extern constexpr Codec kIQ1_SCodec = {TensorType::kIQ1_S, "IQ1_S", kIqElems, 50, iq_types::decode_iq1_s, nullptr};
extern constexpr Codec kIQ1_MCodec = {TensorType::kIQ1_M, "IQ1_M", kIqElems, 56, iq_types::decode_iq1_m, nullptr};

}  // namespace dllm
