#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

// AArch64 with the dot-product extension (Armv8.2-A, Graviton2, Apple M1); a vector of 16 lanes is four registers.
#define DLLM_PANEL_TILES  // panels-inl.h

namespace dllm::cpu::DLLM_ISA {
namespace {

// 32 registers. Float tile: 5 x 4 accumulators, 4 weights, 1 broadcast per row. Int8 tile: 4 x 4 integer accumulators,
// 4 weights, 1 broadcast; its float accumulators are in L1.
constexpr int kFloatRows = 5;
constexpr int kFloatGroups = 1, kFloatPanels = 1;
constexpr int kInt8Rows = 4;
// Attention tile: 4 x 4 registers of accumulators, 4 of queries, 1 broadcast.
constexpr int kAttentionKeys = 4;
constexpr int kAttentionVectors = 1;

struct F32 {
  float32x4_t v[4];
};
struct I32 {
  int32x4_t v[4];
};
struct U8 {
  uint8x16_t v[4];
};

template <class Op>
inline F32 map(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}
template <class Op>
inline I32 map_int(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}

inline F32 set1(float x) {
  return map([=](int) { return vdupq_n_f32(x); });
}
inline I32 set1(std::int32_t x) {
  return map_int([=](int) { return vdupq_n_s32(x); });
}
inline F32 load(const float* p) {
  return map([=](int i) { return vld1q_f32(p + 4 * i); });
}
inline F32 load_n(const float* p, int n) {
  float full[16] = {};
  for (int i = 0; i < n; ++i) full[i] = p[i];
  return load(full);
}
inline void store(float* p, const F32& a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
inline void store_n(float* p, const F32& a, int n) {
  float full[16];
  store(full, a);
  for (int i = 0; i < n; ++i) p[i] = full[i];
}

inline F32 add(const F32& a, const F32& b) {
  return map([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
inline F32 sub(const F32& a, const F32& b) {
  return map([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}
inline F32 mul(const F32& a, const F32& b) {
  return map([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
inline F32 div(const F32& a, const F32& b) {
  return map([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}
inline F32 fma(const F32& a, const F32& b, const F32& c) {
  return map([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
// FMAX would return NaN where x86 returns the second operand, hence compare and select.
inline F32 max(const F32& a, const F32& b) {
  return map([&](int i) { return vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
inline F32 min(const F32& a, const F32& b) {
  return map([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}

inline I32 add(const I32& a, const I32& b) {
  return map_int([&](int i) { return vaddq_s32(a.v[i], b.v[i]); });
}
inline I32 sub(const I32& a, const I32& b) {
  return map_int([&](int i) { return vsubq_s32(a.v[i], b.v[i]); });
}
inline I32 bit_and(const I32& a, const I32& b) {
  return map_int([&](int i) { return vandq_s32(a.v[i], b.v[i]); });
}
inline I32 max(const I32& a, const I32& b) {
  return map_int([&](int i) { return vmaxq_s32(a.v[i], b.v[i]); });
}
/// a > b ? x : y
inline F32 select_greater(const I32& a, const I32& b, const F32& x, const F32& y) {
  return map([&](int i) { return vbslq_f32(vcgtq_s32(a.v[i], b.v[i]), x.v[i], y.v[i]); });
}
template <int kBits>
inline I32 shift_left(const I32& a) {
  return map_int([&](int i) { return vshlq_n_s32(a.v[i], kBits); });
}
template <int kBits>
inline I32 shift_right(const I32& a) {
  return map_int([&](int i) { return vshrq_n_s32(a.v[i], kBits); });
}
inline F32 to_f32(const I32& a) {
  return map([&](int i) { return vcvtq_f32_s32(a.v[i]); });
}
inline F32 as_f32(const I32& a) {
  return map([&](int i) { return vreinterpretq_f32_s32(a.v[i]); });
}
inline I32 as_i32(const F32& a) {
  return map_int([&](int i) { return vreinterpretq_s32_f32(a.v[i]); });
}

inline float reduce_add(const F32& a) {
  const float32x4_t four = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline std::int32_t reduce_add(const I32& a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
}
inline std::int32_t reduce_max(const I32& a) {
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[1]), vmaxq_s32(a.v[2], a.v[3])));
}
inline float reduce_max(const F32& a) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[1]), vmaxq_f32(a.v[2], a.v[3])));
}

inline float half_at(const std::uint8_t* p) {
  std::uint16_t h;
  __builtin_memcpy(&h, p, sizeof h);
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}
inline F32 load_half(const std::uint16_t* p) {
  return map([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}
inline void store_half(std::uint16_t* p, const F32& a) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
}
inline F32 load_bf16(const std::uint16_t* p) {
  return map([=](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
}
inline I32 load_int8(const std::int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)),
           vmovl_s16(vget_high_s16(high))}};
}
inline I32 load_uint8(const std::uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
  const auto wide = [](uint16x4_t four) { return vreinterpretq_s32_u32(vmovl_u16(four)); };
  return {{wide(vget_low_u16(low)), wide(vget_high_u16(low)), wide(vget_low_u16(high)), wide(vget_high_u16(high))}};
}
/// The low half of each lane.
inline void store_words(std::uint16_t* p, const I32& a) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vmovn_u32(vreinterpretq_u32_s32(a.v[i])));
}
inline void store_bytes(std::int8_t* p, const I32& a) {
  const int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

inline bool bf16_dots() { return false; }

inline U8 load_bytes(const std::uint8_t* p) {
  return {{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}};
}
/// SDOT takes signed bytes. Values up to 127 are unchanged; full bytes are flipped to w - 128, and the caller
/// initialises its accumulator accordingly.
template <bool kFull>
constexpr std::int32_t kDotBias = kFull ? 128 : 0;
template <bool kFull>
inline I32 dot4(const I32& acc, const U8& w, std::int32_t a) {
  const int8x16_t four = vreinterpretq_s8_s32(vdupq_n_s32(a));
  return map_int([&](int i) {
    const uint8x16_t flipped = kFull ? veorq_u8(w.v[i], vdupq_n_u8(0x80)) : w.v[i];
    return vdotq_s32(acc.v[i], vreinterpretq_s8_u8(flipped), four);
  });
}

// Codes and their products for panel tiles (panels-inl.h).
inline void store_bytes(std::uint8_t* p, const U8& a) {
  for (int i = 0; i < 4; ++i) vst1q_u8(p + 16 * i, a.v[i]);
}
template <class Op>
inline U8 map_bytes(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}
inline U8 and_bytes(const U8& a, std::uint8_t bits) {
  return map_bytes([&](int i) { return vandq_u8(a.v[i], vdupq_n_u8(bits)); });
}
inline U8 or_bytes(const U8& a, const U8& b) {
  return map_bytes([&](int i) { return vorrq_u8(a.v[i], b.v[i]); });
}
/// Left, or right if negative.
template <int kLeft>
inline U8 shift_bits(const U8& a) {
  return map_bytes([&](int i) {
    if constexpr (kLeft < 0) return vshrq_n_u8(a.v[i], -kLeft);
    if constexpr (kLeft > 0) return vshlq_n_u8(a.v[i], kLeft);
    return a.v[i];
  });
}
/// table[index], of 16 bytes.
inline U8 look_up(const std::uint8_t* table, const U8& index) {
  const uint8x16_t values = vld1q_u8(table);
  return map_bytes([&](int i) { return vqtbl1q_u8(values, index.v[i]); });
}

/// The next 16 k of a row.
struct Quads {
  int8x16_t v;
};
inline Quads load_quads(const std::int8_t* p) { return {vld1q_s8(p)}; }

/// The sum of a group's products: begin, a step per quad, end. Full bytes are flipped to w - 128, whose zero point
/// needs no correction.
template <int kMost>
struct Dots {
  static constexpr bool kSigned = false;
  static constexpr int kRows = 5;
  static constexpr bool kTwoSteps = false;
  using Sum = I32;
  using Ready = U8;
  static Ready ready(const U8& w) {
    if constexpr (kMost <= 127) return w;
    return map_bytes([&](int i) { return veorq_u8(w.v[i], vdupq_n_u8(0x80)); });
  }
  static Sum begin(std::int32_t correction) { return set1(kMost <= 127 ? correction : 0); }
  template <int kLane>
  static Sum step(const Sum& sum, const Ready& w, Quads x) {
    return map_int([&](int i) { return vdotq_laneq_s32(sum.v[i], vreinterpretq_s8_u8(w.v[i]), x.v, kLane); });
  }
  static I32 end(const Sum& sum, std::int32_t) { return sum; }
};

inline void transpose4(const std::uint32_t* src, std::ptrdiff_t stride, std::uint32_t* dst) {
  const uint32x4x2_t top = vtrnq_u32(vld1q_u32(src), vld1q_u32(src + stride));
  const uint32x4x2_t low = vtrnq_u32(vld1q_u32(src + 2 * stride), vld1q_u32(src + 3 * stride));
  vst1q_u32(dst, vcombine_u32(vget_low_u32(top.val[0]), vget_low_u32(low.val[0])));
  vst1q_u32(dst + 16, vcombine_u32(vget_low_u32(top.val[1]), vget_low_u32(low.val[1])));
  vst1q_u32(dst + 32, vcombine_u32(vget_high_u32(top.val[0]), vget_high_u32(low.val[0])));
  vst1q_u32(dst + 48, vcombine_u32(vget_high_u32(top.val[1]), vget_high_u32(low.val[1])));
}
inline void transpose16(const std::uint32_t* src, std::ptrdiff_t stride, std::uint32_t* dst) {
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 16; j += 4) transpose4(src + i * stride + j, stride, dst + 16 * j + i);
}

// Shuffles within groups of four lanes, and the interleaving of two vectors, for attention of few queries.
template <int kSpan>
inline F32 load_span(const float* p) {
  if constexpr (kSpan == 4) {
    const float32x4_t four = vld1q_f32(p);
    return {{four, four, four, four}};
  }
  const float32x2_t two = vld1_f32(p);
  const float32x4_t both = vcombine_f32(two, two);
  return {{both, both, both, both}};
}
template <int kSpan, int kLane>
inline F32 spread(const F32& a) {
  return map([&](int i) {
    if constexpr (kSpan == 4) return vdupq_laneq_f32(a.v[i], kLane);
    return kLane == 0 ? vtrn1q_f32(a.v[i], a.v[i]) : vtrn2q_f32(a.v[i], a.v[i]);
  });
}
inline F32 swap_pairs(const F32& a) {
  return map([&](int i) { return vrev64q_f32(a.v[i]); });
}
inline F32 swap_halves(const F32& a) {
  return map([&](int i) { return vextq_f32(a.v[i], a.v[i], 2); });
}
inline void store_zipped(float* p, const F32& a, const F32& b) {
  for (int i = 0; i < 4; ++i) {
    vst1q_f32(p + 8 * i, vzip1q_f32(a.v[i], b.v[i]));
    vst1q_f32(p + 8 * i + 4, vzip2q_f32(a.v[i], b.v[i]));
  }
}

// Eight lanes of 64 bits, for reductions in double precision and for random numbers.
struct F64 {
  float64x2_t v[4];
};
struct I64 {
  uint64x2_t v[4];
};

template <class Op>
inline F64 map_wide(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}
template <class Op>
inline I64 map_long(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}
inline F64 set1(double x) {
  return map_wide([=](int) { return vdupq_n_f64(x); });
}
inline I64 set1(std::int64_t x) {
  return map_long([=](int) { return vdupq_n_u64(static_cast<std::uint64_t>(x)); });
}
inline F64 load_wide(const float* p) {
  return map_wide([=](int i) { return vcvt_f64_f32(vld1_f32(p + 2 * i)); });
}
inline F64 add(const F64& a, const F64& b) {
  return map_wide([&](int i) { return vaddq_f64(a.v[i], b.v[i]); });
}
inline F64 sub(const F64& a, const F64& b) {
  return map_wide([&](int i) { return vsubq_f64(a.v[i], b.v[i]); });
}
inline F64 mul(const F64& a, const F64& b) {
  return map_wide([&](int i) { return vmulq_f64(a.v[i], b.v[i]); });
}
inline F64 fma(const F64& a, const F64& b, const F64& c) {
  return map_wide([&](int i) { return vfmaq_f64(c.v[i], a.v[i], b.v[i]); });
}
inline F64 select_greater(const F64& a, const F64& b, const F64& x, const F64& y) {
  return map_wide([&](int i) { return vbslq_f64(vcgtq_f64(a.v[i], b.v[i]), x.v[i], y.v[i]); });
}
inline F64 as_f64(const I64& a) {
  return map_wide([&](int i) { return vreinterpretq_f64_u64(a.v[i]); });
}
inline I64 as_i64(const F64& a) {
  return map_long([&](int i) { return vreinterpretq_u64_f64(a.v[i]); });
}
inline I64 add(const I64& a, const I64& b) {
  return map_long([&](int i) { return vaddq_u64(a.v[i], b.v[i]); });
}
inline I64 bit_and(const I64& a, const I64& b) {
  return map_long([&](int i) { return vandq_u64(a.v[i], b.v[i]); });
}
inline I64 bit_or(const I64& a, const I64& b) {
  return map_long([&](int i) { return vorrq_u64(a.v[i], b.v[i]); });
}
inline I64 bit_xor(const I64& a, const I64& b) {
  return map_long([&](int i) { return veorq_u64(a.v[i], b.v[i]); });
}
template <int kBits>
inline I64 shift_left(const I64& a) {
  return map_long([&](int i) { return vshlq_n_u64(a.v[i], kBits); });
}
template <int kBits>
inline I64 shift_right(const I64& a) {
  return map_long([&](int i) { return vshrq_n_u64(a.v[i], kBits); });
}
inline I64 mul_low(const I64& a, const I64& b) {
  return map_long([&](int i) { return vmull_u32(vmovn_u64(a.v[i]), vmovn_u64(b.v[i])); });
}
inline double reduce_add(const F64& a) {
  const float64x2_t two = vaddq_f64(vaddq_f64(a.v[0], a.v[2]), vaddq_f64(a.v[1], a.v[3]));
  return vgetq_lane_f64(two, 0) + vgetq_lane_f64(two, 1);
}
inline int first_at_least(const F32& a, const F32& b) {
  uint32x4_t any = vdupq_n_u32(0);
  for (int i = 0; i < 4; ++i) any = vorrq_u32(any, vcgeq_f32(a.v[i], b.v[i]));
  if (vmaxvq_u32(any) == 0) return 16;
  float x[16], y[16];
  store(x, a);
  store(y, b);
  int i = 0;
  while (!(x[i] >= y[i])) ++i;
  return i;
}
inline int first_not_less(const F64& a, const F64& b) {
  double x[8], y[8];
  for (int i = 0; i < 4; ++i) {
    vst1q_f64(x + 2 * i, a.v[i]);
    vst1q_f64(y + 2 * i, b.v[i]);
  }
  int i = 0;
  while (i < 8 && x[i] < y[i]) ++i;
  return i;
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA

#include "cpu/kernels/simd_neon_codes.h"
