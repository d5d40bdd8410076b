#pragma once

#include "cpu/kernels/bf16-inl.h"

namespace dllm::cpu::DLLM_ISA {
namespace {

/// 16 F16 weights w as sums of two BF16 numbers: `high` is w without the bits that BF16 lacks, and `rest` is w - high,
/// of at most three bits. A weight that is not finite has a part that is not a number.
struct HalfParts {
  I32 high;  ///< BF16 in the upper half of each lane
  F32 rest;
};
inline HalfParts half_parts(const std::uint16_t* p) {
  const F32 weight = load_half(p);
  const I32 high = bit_and(as_i32(weight), set1(std::int32_t{-0x10000}));
  return {high, sub(weight, as_f32(high))};
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
