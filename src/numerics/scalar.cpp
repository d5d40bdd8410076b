// F32, F16 and BF16: one element per "block".

#include <cstring>

#include "numerics/half.h"
#include "numerics/tensor_type.h"

namespace dllm {
namespace {

void copy_to_f32(const std::byte* src, float* dst, std::int64_t count) {
  if (count > 0) std::memcpy(dst, src, static_cast<std::size_t>(count) * sizeof(float));
}

void copy_from_f32(const float* src, std::byte* dst, std::int64_t count) {
  if (count > 0) std::memcpy(dst, src, static_cast<std::size_t>(count) * sizeof(float));
}

template <float (*widen)(std::uint16_t)>
void widen_all(const std::byte* src, float* dst, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, src + 2 * i, sizeof(bits));
    dst[i] = widen(bits);
  }
}

template <std::uint16_t (*narrow)(float)>
void narrow_all(const float* src, std::byte* dst, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint16_t bits = narrow(src[i]);
    std::memcpy(dst + 2 * i, &bits, sizeof(bits));
  }
}

}  // namespace

extern constexpr Codec kF32Codec{TensorType::kF32, "F32", 1, 4, copy_to_f32, copy_from_f32};
extern constexpr Codec kF16Codec{TensorType::kF16, "F16", 1, 2, widen_all<f16_to_f32>, narrow_all<f32_to_f16>};
extern constexpr Codec kBF16Codec{TensorType::kBF16, "BF16", 1, 2, widen_all<bf16_to_f32>, narrow_all<f32_to_bf16>};

}  // namespace dllm
