#pragma once

namespace dllm::cpu::DLLM_ISA {
namespace {

inline int count_of(std::int64_t i, std::int64_t n) { return static_cast<int>(n - i < 16 ? n - i : 16); }

/// e^x. x = n ln 2 + r with |r| <= ln 2 / 2, e^r by its Taylor polynomial of degree 7 (truncation 5e-9), scaled by 2^n.
inline F32 exp(const F32& x) {
  // Beyond these limits the result is 0 or inf anyway, and n stays within two float exponents. The constant comes first
  // because the second operand wins against NaN.
  const F32 clamped = min(set1(89.f), max(set1(-104.f), x));
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum.
  const F32 magic = set1(12582912.f);
  const F32 shifted = fma(clamped, set1(1.44269504f), magic);
  const F32 n = sub(shifted, magic);
  // ln 2 in two parts; the first has 14 bits, so n times it is exact.
  const F32 r = fma(n, set1(-0x1.7f7d1cp-20f), fma(n, set1(-0x1.62e4p-1f), clamped));
  // Estrin's scheme: a third of the latency of Horner's chain (4 % of SwiGLU's time).
  const F32 r2 = mul(r, r);
  const F32 c23 = fma(set1(1.f / 6), r, set1(0.5f));
  const F32 c45 = fma(set1(1.f / 120), r, set1(1.f / 24));
  const F32 c67 = fma(set1(1.f / 5040), r, set1(1.f / 720));
  const F32 p = add(set1(1.f), fma(fma(fma(c67, r2, c45), r2, c23), r2, r));
  // 2^n in two factors reaches subnormals and infinity with one rounding.
  const I32 k = sub(as_i32(shifted), as_i32(magic));
  const I32 half = shift_right<1>(k);
  const I32 bias = set1(std::int32_t{127});
  const F32 scale0 = as_f32(shift_left<23>(add(half, bias)));
  const F32 scale1 = as_f32(shift_left<23>(add(sub(k, half), bias)));
  return mul(mul(p, scale0), scale1);
}

/// 2^x for x <= 0, as softmax needs it: below kLeast the result stays at 2^kLeast (negligible compared with a weight of
/// 1, and scaling need not handle subnormals), 2^0 is exactly 1, NaN stays NaN. The polynomial of degree 6 minimizes
/// the relative error over [-1/2, 1/2] with the constant fixed at 1 (Lawson's iteration): 2e-9, so that the rounding of
/// its last steps dominates.
template <int kLeast = -125>
inline F32 exp2_weight(const F32& x) {
  const F32 clamped = max(set1(static_cast<float>(kLeast)), x);
  const F32 magic = set1(12582912.f);  // 1.5 * 2^23, as above
  const F32 shifted = add(clamped, magic);
  const F32 r = sub(clamped, sub(shifted, magic));
  const F32 r2 = mul(r, r);
  const F32 c23 = fma(set1(0.0555033247f), r, set1(0.240226479f));
  const F32 c45 = fma(set1(0.00133988746f), r, set1(0.00961843737f));
  const F32 c456 = fma(set1(0.000153533604f), r2, c45);
  const F32 p = add(set1(1.f), fma(fma(c456, r2, c23), r2, mul(set1(0.693147203f), r)));
  // p is in [0.7, 1.42], so adding n to its exponent stays within the normal numbers. The low bits of `shifted` are n
  // plus bits that the shift drops.
  return as_f32(add(as_i32(p), shift_left<23>(as_i32(shifted))));
}

inline void exp_row(const float* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const int count = count_of(i, n);
    store_n(out + i, exp(load_n(x + i, count)), count);
  }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
