// The end of simd_neon.h, which alone includes it.
#pragma once

#include "cpu/kernels/super.h"

namespace dllm::cpu::DLLM_ISA {
namespace {

template <Nibbles kKind>
inline void decode_nibbles(const std::uint8_t* codes, const std::uint16_t* offsets, const std::int8_t* tables,
                           const std::uint8_t* minima, const std::uint8_t* fifths, std::uint8_t* low,
                           std::uint8_t* high) {
  const auto entries = [&](int group, int sixteen, uint8x16_t codes16) {
    const std::uint8_t* table = reinterpret_cast<const std::uint8_t*>(tables) + offsets[group];
    uint8x16_t values;
    if constexpr (kKind == Nibbles::kFives) {
      // Bit i of 16 to bit 4 of byte i.
      constexpr std::uint8_t kBits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
      const uint8x16_t bits = vcombine_u8(vdup_n_u8(fifths[2 * sixteen]), vdup_n_u8(fifths[2 * sixteen + 1]));
      const uint8x16_t fifth = vandq_u8(vtstq_u8(bits, vld1q_u8(kBits)), vdupq_n_u8(16));
      values = vqtbl2q_u8({{vld1q_u8(table), vld1q_u8(table + 16)}}, vorrq_u8(codes16, fifth));
    } else {
      values = vqtbl1q_u8(vld1q_u8(table), codes16);
    }
    return vsubq_u8(values, vdupq_n_u8(kKind == Nibbles::kPlain ? 0 : minima[group]));
  };
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t both = vld1q_u8(codes + 16 * i);
    vst1q_u8(low + 16 * i, entries(i / 2, i, vandq_u8(both, vdupq_n_u8(15))));
    vst1q_u8(high + 16 * i, entries(2 + i / 2, 4 + i, vshrq_n_u8(both, 4)));
  }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
