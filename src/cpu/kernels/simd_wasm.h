#pragma once

#include <wasm_simd128.h>

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/exact_fma.h"
#include "cpu/kernels/super.h"

// WebAssembly: SIMD128, which every browser has had since 2023, and with DLLM_RELAXED_SIMD the relaxed instructions,
// whose multiply-add is fused where the processor has one (registry.cpp asks). A vector of 16 lanes is four values of
// 128 bits.

namespace dllm::cpu::DLLM_ISA {
namespace {

// A browser on x86-64 has 16 registers for these values: 2 x 4 accumulators, 4 weights, a broadcast.
constexpr int kFloatRows = 2;
constexpr int kFloatGroups = 1, kFloatPanels = 1;
constexpr int kInt8Rows = 2;
constexpr int kAttentionKeys = 2;
constexpr int kAttentionVectors = 1;

struct F32 {
  v128_t v[4];
};
struct I32 {
  v128_t v[4];
};
struct U8 {
  v128_t v[4];
};

template <class Op>
inline F32 map(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}
template <class Op>
inline I32 map_int(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}
template <class Op>
inline U8 map_bytes(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}

inline F32 set1(float x) {
  return map([=](int) { return wasm_f32x4_splat(x); });
}
inline I32 set1(std::int32_t x) {
  return map_int([=](int) { return wasm_i32x4_splat(x); });
}
inline F32 load(const float* p) {
  return map([=](int i) { return wasm_v128_load(p + 4 * i); });
}
inline F32 load_n(const float* p, int n) {
  float full[16] = {};
  for (int i = 0; i < n; ++i) full[i] = p[i];
  return load(full);
}
inline void store(float* p, const F32& a) {
  for (int i = 0; i < 4; ++i) wasm_v128_store(p + 4 * i, a.v[i]);
}
inline void store_n(float* p, const F32& a, int n) {
  float full[16];
  store(full, a);
  for (int i = 0; i < n; ++i) p[i] = full[i];
}

inline F32 add(const F32& a, const F32& b) {
  return map([&](int i) { return wasm_f32x4_add(a.v[i], b.v[i]); });
}
inline F32 sub(const F32& a, const F32& b) {
  return map([&](int i) { return wasm_f32x4_sub(a.v[i], b.v[i]); });
}
inline F32 mul(const F32& a, const F32& b) {
  return map([&](int i) { return wasm_f32x4_mul(a.v[i], b.v[i]); });
}
inline F32 div(const F32& a, const F32& b) {
  return map([&](int i) { return wasm_f32x4_div(a.v[i], b.v[i]); });
}

#ifdef DLLM_RELAXED_SIMD
inline F32 fma(const F32& a, const F32& b, const F32& c) {
  return map([&](int i) { return wasm_f32x4_relaxed_madd(a.v[i], b.v[i], c.v[i]); });
}
#else
[[gnu::noinline]] F32 fma_by_lanes(const F32& a, const F32& b, const F32& c) {
  float x[16], y[16], z[16];
  store(x, a);
  store(y, b);
  store(z, c);
  for (int i = 0; i < 16; ++i) z[i] = exact_fma(x[i], y[i], z[i]);
  return load(z);
}

/// In double precision the products are exact and the sums are rounded. Rounding them once more, to floats, is right
/// unless a double is exactly halfway between two neighbouring floats, where the first rounding may have put it. The
/// low 29 bits of such a double, in the range of normal floats, are those of 2^28. Sums whose float is subnormal, or
/// the smallest normal one, are always computed again; what is rounded to zero is exact before (a product has 48 bits).
inline F32 fma(const F32& a, const F32& b, const F32& c) {
  v128_t lowest = wasm_i32x4_const_splat(0), least = wasm_i32x4_const_splat(-1);
  const auto half = [](v128_t x, v128_t y, v128_t z) {
    return wasm_f64x2_add(wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(x), wasm_f64x2_promote_low_f32x4(y)),
                          wasm_f64x2_promote_low_f32x4(z));
  };
  const auto high = [](v128_t x) { return wasm_i32x4_shuffle(x, x, 2, 3, 2, 3); };
  const F32 sum = map([&](int i) {
    const v128_t x = half(a.v[i], b.v[i], c.v[i]), y = half(high(a.v[i]), high(b.v[i]), high(c.v[i]));
    // The low 29 bits at the top of a word: 2^28 is then the least number of all.
    lowest = wasm_i32x4_min(lowest, wasm_i32x4_shl(wasm_i32x4_shuffle(x, y, 0, 2, 4, 6), 3));
    const v128_t result =
        wasm_i32x4_shuffle(wasm_f32x4_demote_f64x2_zero(x), wasm_f32x4_demote_f64x2_zero(y), 0, 1, 4, 5);
    least = wasm_u32x4_min(least, wasm_i32x4_sub(wasm_f32x4_abs(result), wasm_i32x4_const_splat(1)));
    return result;
  });
  const v128_t tie = wasm_i32x4_eq(lowest, wasm_i32x4_const_splat(INT32_MIN));
  const v128_t small = wasm_u32x4_lt(least, wasm_i32x4_const_splat(0x00800000));
  if (wasm_v128_any_true(wasm_v128_or(tie, small))) [[unlikely]]
    return fma_by_lanes(a, b, c);
  return sum;
}
#endif

// Pseudo-minimum and -maximum of swapped operands: the second operand wins if either is NaN.
inline F32 max(const F32& a, const F32& b) {
  return map([&](int i) { return wasm_f32x4_pmax(b.v[i], a.v[i]); });
}
inline F32 min(const F32& a, const F32& b) {
  return map([&](int i) { return wasm_f32x4_pmin(b.v[i], a.v[i]); });
}

inline I32 add(const I32& a, const I32& b) {
  return map_int([&](int i) { return wasm_i32x4_add(a.v[i], b.v[i]); });
}
inline I32 sub(const I32& a, const I32& b) {
  return map_int([&](int i) { return wasm_i32x4_sub(a.v[i], b.v[i]); });
}
inline I32 bit_and(const I32& a, const I32& b) {
  return map_int([&](int i) { return wasm_v128_and(a.v[i], b.v[i]); });
}
inline I32 max(const I32& a, const I32& b) {
  return map_int([&](int i) { return wasm_i32x4_max(a.v[i], b.v[i]); });
}
/// a > b ? x : y
inline F32 select_greater(const I32& a, const I32& b, const F32& x, const F32& y) {
  return map([&](int i) { return wasm_v128_bitselect(x.v[i], y.v[i], wasm_i32x4_gt(a.v[i], b.v[i])); });
}
template <int kBits>
inline I32 shift_left(const I32& a) {
  return map_int([&](int i) { return wasm_i32x4_shl(a.v[i], kBits); });
}
template <int kBits>
inline I32 shift_right(const I32& a) {
  return map_int([&](int i) { return wasm_i32x4_shr(a.v[i], kBits); });
}
inline F32 to_f32(const I32& a) {
  return map([&](int i) { return wasm_f32x4_convert_i32x4(a.v[i]); });
}
inline F32 as_f32(const I32& a) { return {{a.v[0], a.v[1], a.v[2], a.v[3]}}; }
inline I32 as_i32(const F32& a) { return {{a.v[0], a.v[1], a.v[2], a.v[3]}}; }

inline float reduce_add(const F32& a) {
  const v128_t four = wasm_f32x4_add(wasm_f32x4_add(a.v[0], a.v[2]), wasm_f32x4_add(a.v[1], a.v[3]));
  const v128_t two = wasm_f32x4_add(four, wasm_i32x4_shuffle(four, four, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(two, 0) + wasm_f32x4_extract_lane(two, 1);
}
inline std::int32_t reduce_add(const I32& a) {
  const v128_t four = wasm_i32x4_add(wasm_i32x4_add(a.v[0], a.v[1]), wasm_i32x4_add(a.v[2], a.v[3]));
  const v128_t two = wasm_i32x4_add(four, wasm_i32x4_shuffle(four, four, 2, 3, 0, 1));
  return wasm_i32x4_extract_lane(wasm_i32x4_add(two, wasm_i32x4_shuffle(two, two, 1, 0, 3, 2)), 0);
}
inline std::int32_t reduce_max(const I32& a) {
  const v128_t four = wasm_i32x4_max(wasm_i32x4_max(a.v[0], a.v[1]), wasm_i32x4_max(a.v[2], a.v[3]));
  const v128_t two = wasm_i32x4_max(four, wasm_i32x4_shuffle(four, four, 2, 3, 0, 1));
  return wasm_i32x4_extract_lane(wasm_i32x4_max(two, wasm_i32x4_shuffle(two, two, 1, 0, 3, 2)), 0);
}
inline float reduce_max(const F32& a) {
  const v128_t four = wasm_f32x4_pmax(wasm_f32x4_pmax(a.v[0], a.v[1]), wasm_f32x4_pmax(a.v[2], a.v[3]));
  const v128_t two = wasm_f32x4_pmax(four, wasm_i32x4_shuffle(four, four, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(wasm_f32x4_pmax(two, wasm_i32x4_shuffle(two, two, 1, 0, 3, 2)), 0);
}

/// Four halves as the words of a vector: rebiased, which also normalises subnormals; infinities and NaN keep their
/// exponent, NaN become quiet (as half_to_float() of simd_scalar.h).
inline v128_t widen_half(v128_t words) {
  const v128_t sign = wasm_i32x4_shl(wasm_v128_and(words, wasm_i32x4_const_splat(0x8000)), 16);
  const v128_t magnitude = wasm_i32x4_shl(wasm_v128_and(words, wasm_i32x4_const_splat(0x7fff)), 13);
  const v128_t number = wasm_f32x4_mul(magnitude, wasm_f32x4_const_splat(0x1.0p112f));
  const v128_t infinite = wasm_i32x4_gt(magnitude, wasm_i32x4_const_splat(0x0f7fffff));
  const v128_t quiet =
      wasm_v128_and(wasm_i32x4_gt(magnitude, wasm_i32x4_const_splat(0x0f800000)), wasm_i32x4_const_splat(0x00400000));
  const v128_t special = wasm_v128_or(wasm_v128_or(magnitude, quiet), wasm_i32x4_const_splat(0x7f800000));
  return wasm_v128_or(wasm_v128_bitselect(special, number, infinite), sign);
}
/// The reverse, rounded to nearest even (as float_to_half() of simd_scalar.h): in the low half of each word.
inline v128_t narrow_half(v128_t number) {
  const auto splat = [](std::int32_t x) { return wasm_i32x4_splat(x); };
  const v128_t sign = wasm_v128_and(wasm_u32x4_shr(number, 16), splat(0x8000));
  const v128_t magnitude = wasm_v128_and(number, splat(0x7fffffff));
  const v128_t payload = wasm_v128_and(wasm_u32x4_shr(magnitude, 13), splat(0x3ff));
  const v128_t nan = wasm_v128_or(payload, splat(0x7e00));
  const v128_t subnormal = wasm_i32x4_sub(wasm_f32x4_add(magnitude, wasm_f32x4_const_splat(0.5f)), splat(0x3f000000));
  const v128_t odd = wasm_v128_and(wasm_u32x4_shr(magnitude, 13), splat(1));
  const v128_t rounded = wasm_i32x4_add(wasm_i32x4_add(magnitude, splat(0xfff)), odd);
  v128_t half = wasm_u32x4_shr(wasm_i32x4_sub(rounded, splat(0x38000000)), 13);
  half = wasm_v128_bitselect(subnormal, half, wasm_i32x4_lt(magnitude, splat(0x38800000)));
  half = wasm_v128_bitselect(splat(0x7c00), half, wasm_i32x4_gt(magnitude, splat(0x477fefff)));
  half = wasm_v128_bitselect(nan, half, wasm_i32x4_gt(magnitude, splat(0x7f800000)));
  return wasm_v128_or(half, sign);
}

inline float half_at(const std::uint8_t* p) {
  std::uint16_t h;
  __builtin_memcpy(&h, p, sizeof h);
  return wasm_f32x4_extract_lane(widen_half(wasm_i32x4_splat(h)), 0);
}
inline F32 load_half(const std::uint16_t* p) {
  return map([=](int i) { return widen_half(wasm_u32x4_load16x4(p + 4 * i)); });
}
/// The low half of each lane.
inline void store_words(std::uint16_t* p, const I32& a) {
  for (int i = 0; i < 2; ++i)
    wasm_v128_store(p + 8 * i, wasm_i16x8_shuffle(a.v[2 * i], a.v[2 * i + 1], 0, 2, 4, 6, 8, 10, 12, 14));
}
inline void store_half(std::uint16_t* p, const F32& a) {
  store_words(p, map_int([&](int i) { return narrow_half(a.v[i]); }));
}
inline F32 load_bf16(const std::uint16_t* p) {
  return map([=](int i) { return wasm_i32x4_shl(wasm_u32x4_load16x4(p + 4 * i), 16); });
}
inline I32 load_int8(const std::int8_t* p) {
  return map_int([=](int i) {
    return wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(p + 4 * i)));
  });
}
inline I32 load_uint8(const std::uint8_t* p) {
  return map_int([=](int i) {
    return wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p + 4 * i)));
  });
}
/// |lane| <= 127, so that narrowing with saturation keeps the values.
inline void store_bytes(std::int8_t* p, const I32& a) {
  wasm_v128_store(
      p, wasm_i8x16_narrow_i16x8(wasm_i16x8_narrow_i32x4(a.v[0], a.v[1]), wasm_i16x8_narrow_i32x4(a.v[2], a.v[3])));
}

inline bool bf16_dots() { return false; }

inline U8 load_bytes(const std::uint8_t* p) {
  return map_bytes([=](int i) { return wasm_v128_load(p + 16 * i); });
}
template <bool kFull>
constexpr std::int32_t kDotBias = 0;

/// Not the relaxed dot product of bytes: V8 11.3 computes other sums with it, even where the specification leaves
/// nothing open.
template <bool kFull>
inline v128_t dot4_quarter(v128_t acc, v128_t w, v128_t four) {
  const v128_t words = wasm_i16x8_extend_low_i8x16(four);
  const v128_t x = wasm_i32x4_dot_i16x8(wasm_u16x8_extend_low_u8x16(w), words);
  const v128_t y = wasm_i32x4_dot_i16x8(wasm_u16x8_extend_high_u8x16(w), words);
  const v128_t sum = wasm_i32x4_add(wasm_i32x4_shuffle(x, y, 0, 2, 4, 6), wasm_i32x4_shuffle(x, y, 1, 3, 5, 7));
  return wasm_i32x4_add(acc, sum);
}
template <bool kFull>
inline I32 dot4(const I32& acc, const U8& w, std::int32_t a) {
  const v128_t four = wasm_i32x4_splat(a);
  return map_int([&](int i) { return dot4_quarter<kFull>(acc.v[i], w.v[i], four); });
}

inline void transpose4(const std::uint32_t* src, std::ptrdiff_t stride, std::uint32_t* dst) {
  v128_t r[4], t[4];
  for (int i = 0; i < 4; ++i) r[i] = wasm_v128_load(src + i * stride);
  for (int i = 0; i < 2; ++i) {
    t[2 * i] = wasm_i32x4_shuffle(r[2 * i], r[2 * i + 1], 0, 4, 1, 5);
    t[2 * i + 1] = wasm_i32x4_shuffle(r[2 * i], r[2 * i + 1], 2, 6, 3, 7);
  }
  for (int i = 0; i < 2; ++i) {
    wasm_v128_store(dst + 32 * i, wasm_i64x2_shuffle(t[i], t[i + 2], 0, 2));
    wasm_v128_store(dst + 32 * i + 16, wasm_i64x2_shuffle(t[i], t[i + 2], 1, 3));
  }
}
inline void transpose16(const std::uint32_t* src, std::ptrdiff_t stride, std::uint32_t* dst) {
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 16; j += 4) transpose4(src + i * stride + j, stride, dst + 16 * j + i);
}

// Shuffles within groups of four lanes, and the interleaving of two vectors, for attention of few queries.
template <int kSpan>
inline F32 load_span(const float* p) {
  const v128_t span = kSpan == 4 ? wasm_v128_load(p) : wasm_v128_load64_splat(p);
  return {{span, span, span, span}};
}
template <int kSpan, int kLane>
inline F32 spread(const F32& a) {
  return map([&](int i) {
    if constexpr (kSpan == 4) return wasm_i32x4_shuffle(a.v[i], a.v[i], kLane, kLane, kLane, kLane);
    return wasm_i32x4_shuffle(a.v[i], a.v[i], kLane % 2, kLane % 2, 2 + kLane % 2, 2 + kLane % 2);
  });
}
inline F32 swap_pairs(const F32& a) {
  return map([&](int i) { return wasm_i32x4_shuffle(a.v[i], a.v[i], 1, 0, 3, 2); });
}
inline F32 swap_halves(const F32& a) {
  return map([&](int i) { return wasm_i32x4_shuffle(a.v[i], a.v[i], 2, 3, 0, 1); });
}
inline void store_zipped(float* p, const F32& a, const F32& b) {
  for (int i = 0; i < 4; ++i) {
    wasm_v128_store(p + 8 * i, wasm_i32x4_shuffle(a.v[i], b.v[i], 0, 4, 1, 5));
    wasm_v128_store(p + 8 * i + 4, wasm_i32x4_shuffle(a.v[i], b.v[i], 2, 6, 3, 7));
  }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA

#include "cpu/kernels/simd_wasm_wide.h"
