// IQ1, IQ2 and IQ3: blocks of 256 elements whose codes are places in lists of groups (iq_grids.h), decoded only.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "numerics/block_codec.h"
#include "numerics/half.h"
#include "numerics/iq_blocks.h"

namespace dllm {
namespace iq_types {
namespace {

/// x = d s v / divisor. The divisor is a power of two and d s v has few bits, so that the products are exact, and equal
/// to GGML's in any order.
template <TensorType kType, int kBytes, int kGroup, const auto& kValues, int kDivisor>
void decode(const std::byte* src, float* dst, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kIqElems, src += kBytes, dst += kIqElems) {
    std::uint8_t bytes[kBytes];
    std::memcpy(bytes, src, kBytes);
    IqBlock block;
    read_iq_block(kType, bytes, block);
    std::uint16_t d;
    std::memcpy(&d, block.d, 2);
    const float unit = f16_to_f32(d) / kDivisor;
    for (int j = 0; j < kIqElems / kGroup; ++j) {
      const float scale = unit * static_cast<float>(block.scale[j]);
      for (int e = kGroup * j; e < kGroup * (j + 1); ++e) dst[e] = scale * static_cast<float>(kValues[block.codes[e]]);
    }
  }
}

/// kGroup: elements with one scale.
template <TensorType kType, int kBytes, int kGroup, const auto& kValues, int kDivisor>
constexpr Codec codec_of(std::string_view name) {
  return {kType, name, kIqElems, kBytes, decode<kType, kBytes, kGroup, kValues, kDivisor>, nullptr};
}

}  // namespace
}  // namespace iq_types

extern constexpr Codec kIQ2_XXSCodec = iq_types::codec_of<TensorType::kIQ2_XXS, 66, 32, kIq2Values, 8>("IQ2_XXS");
extern constexpr Codec kIQ2_XSCodec = iq_types::codec_of<TensorType::kIQ2_XS, 74, 16, kIq2Values, 8>("IQ2_XS");
extern constexpr Codec kIQ2_SCodec = iq_types::codec_of<TensorType::kIQ2_S, 82, 16, kIq2Values, 8>("IQ2_S");
extern constexpr Codec kIQ3_XXSCodec = iq_types::codec_of<TensorType::kIQ3_XXS, 98, 32, kIq3XxsValues, 4>("IQ3_XXS");
extern constexpr Codec kIQ3_SCodec = iq_types::codec_of<TensorType::kIQ3_S, 110, 32, kIq3SValues, 1>("IQ3_S");
extern constexpr Codec kIQ1_SCodec = iq_types::codec_of<TensorType::kIQ1_S, 50, 32, kIq1Values, 8>("IQ1_S");
extern constexpr Codec kIQ1_MCodec = iq_types::codec_of<TensorType::kIQ1_M, 56, 16, kIq1Values, 8>("IQ1_M");

}  // namespace dllm
