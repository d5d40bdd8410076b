#pragma once

#include "cpu/kernels/math-inl.h"

namespace dllm::cpu::DLLM_ISA {
namespace {

/// BF16 in the upper half of each lane; the lower half is undefined.
inline I32 round_to_bf16(F32 x) {
  const I32 magnitude = set1(std::int32_t{0x7fffffff}), infinity = set1(std::int32_t{0x7f800000});
  const I32 bits = as_i32(x);
  // Half a unit minus one, plus the last bit that stays: ties go to even. A NaN must not carry into the sign.
  const I32 odd = bit_and(shift_right<16>(bits), set1(std::int32_t{1}));
  const I32 rounded = add(add(bits, set1(std::int32_t{0x7fff})), odd);
  return as_i32(
      select_greater(bit_and(bits, magnitude), infinity, as_f32(set1(std::int32_t{0x7fc00000})), as_f32(rounded)));
}

inline I32 bf16_of(F32 x) { return bit_and(round_to_bf16(x), set1(std::int32_t{-0x10000})); }

/// A lane's word of `high` above that of `low`, both as floats that are BF16 numbers.
inline F32 pair_of(F32 high, F32 low) {
  return as_f32(add(as_i32(high), bit_and(shift_right<16>(as_i32(low)), set1(std::int32_t{0xffff}))));
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
