// Numbers as shaders/exact.glsl and functions.glsl have them. A card's own operators are those of IEEE 754 here, also for
// subnormal numbers, so nothing is corrected: nvcc must not fuse or flush (-fmad=false, and neither -ftz nor -use_fast_math).
#pragma once
#include <cstdint>

namespace {

constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
constexpr int kMagicBits = 0x4b400000;

__device__ inline float bits_of(std::uint32_t bits) { return __uint_as_float(bits); }
__device__ inline float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

__device__ inline std::uint32_t bf16_bits(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc00000u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
}
__device__ inline float widen(std::uint32_t half) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(static_cast<unsigned short>(half)));
  return result;
}

__device__ inline float exponential(float x) {
  float clamped = -104.0f > x ? -104.0f : x;
  clamped = 89.0f < clamped ? 89.0f : clamped;
  const float shifted = __fmaf_rn(clamped, bits_of(0x3fb8aa3bu), kMagic), n = __fsub_rn(shifted, kMagic);
  const float r = __fmaf_rn(n, bits_of(0xb5bfbe8eu), __fmaf_rn(n, bits_of(0xbf317200u), clamped)), r2 = __fmul_rn(r, r);
  const float c23 = __fmaf_rn(bits_of(0x3e2aaaabu), r, 0.5f), c45 = __fmaf_rn(bits_of(0x3c088889u), r, bits_of(0x3d2aaaabu));
  const float c67 = __fmaf_rn(bits_of(0x39500d01u), r, bits_of(0x3ab60b61u));
  const float sum = __fadd_rn(1.0f, __fmaf_rn(__fmaf_rn(__fmaf_rn(c67, r2, c45), r2, c23), r2, r));
  const int k = __float_as_int(shifted) - kMagicBits, half_k = k >> 1;
  return __fmul_rn(__fmul_rn(sum, power_of_two(half_k)), power_of_two(k - half_k));
}

__device__ inline float weight_of(float x) {
  const float clamped = -125.0f > x ? -125.0f : x, shifted = __fadd_rn(clamped, kMagic);
  const float r = __fsub_rn(clamped, __fsub_rn(shifted, kMagic)), r2 = __fmul_rn(r, r);
  const float c23 = __fmaf_rn(bits_of(0x3d635774u), r, bits_of(0x3e75fdeeu));
  const float c45 = __fmaf_rn(bits_of(0x3aaf9f2au), r, bits_of(0x3c1d96a6u));
  const float c456 = __fmaf_rn(bits_of(0x3920fdddu), r2, c45);
  const float sum = __fadd_rn(1.0f, __fmaf_rn(__fmaf_rn(c456, r2, c23), r2, __fmul_rn(bits_of(0x3f317218u), r)));
  return __int_as_float(__float_as_int(sum) + (__float_as_int(shifted) << 23));
}

// Copies that run beside what follows, in groups.
template <int kBytes>
__device__ inline void copy_async(void* to, const void* from) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  if (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(kBytes) : "memory");
}
__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ inline void wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace
