#pragma once

#include <bit>
#include <cstdint>

namespace dllm {

/// IEEE binary16 <-> binary32, exact widening and round-to-nearest-even narrowing (NaN stays NaN, overflow -> inf).
/// _Float16 would need -mf16c or a libgcc call per element on x86-64; this form vectorises and is the same everywhere.
inline float f16_to_f32(std::uint16_t h) {
  const std::uint32_t sign = std::uint32_t{h & 0x8000u} << 16;
  const std::uint32_t magnitude = std::uint32_t{h & 0x7fffu} << 13;
  // Rebias the exponent by a multiplication, which also normalises subnormals: 2^112 = 2^(127 - 15).
  const float rebased = std::bit_cast<float>(magnitude) * 0x1.0p112f;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(rebased);
  if (magnitude >= 0x0f800000u) bits = magnitude | 0x7f800000u;  // inf, NaN: exponent all ones, payload kept
  return std::bit_cast<float>(bits | sign);
}

inline std::uint16_t f32_to_f16(float f) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // >= 65520 rounds to inf
  if (magnitude < 0x38800000u) {                                                    // below 2^-14: subnormal
    // Adding 0.5 (exponent 126) aligns the ulp to 2^-24, so the FPU itself rounds to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  magnitude += 0x00000fffu + ((magnitude >> 13) & 1u);  // nearest even
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u) >> 13));
}

inline float bf16_to_f32(std::uint16_t h) { return std::bit_cast<float>(std::uint32_t{h} << 16); }

inline std::uint16_t f32_to_bf16(float f) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // quiet NaN
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace dllm
