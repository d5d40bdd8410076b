#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/exact_fma.h"
#include "cpu/kernels/super.h"

// The SIMD policy in plain C++: it defines what the other policies must compute. Its translation unit has no vector
// flags, so a fused multiply-add is a call on x86-64; this set is the reference, not a fast fallback.

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr int kFloatRows = 4;                      ///< rows of x per register tile
constexpr int kFloatGroups = 1, kFloatPanels = 1;  ///< tile of packed floats: groups of six rows by panels
constexpr int kInt8Rows = 4;
constexpr int kAttentionKeys = 4;     ///< keys (or dimensions) by
constexpr int kAttentionVectors = 1;  ///< vectors of queries in a register tile of attention

struct F32 {
  float lane[16];
};
struct I32 {
  std::int32_t lane[16];
};
struct U8 {
  std::uint8_t byte[64];
};

template <class Op>
inline F32 map(Op op) {
  F32 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = op(i);
  return r;
}
template <class Op>
inline I32 map_int(Op op) {
  I32 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = op(i);
  return r;
}

inline F32 set1(float x) {
  return map([=](int) { return x; });
}
inline I32 set1(std::int32_t x) {
  return map_int([=](int) { return x; });
}
// As vector instructions do, these and transpose16() access memory whatever the type of what was written there.
inline F32 load(const float* p) {
  F32 r;
  __builtin_memcpy(r.lane, p, sizeof r.lane);
  return r;
}
inline F32 load_n(const float* p, int n) {
  F32 r{};
  __builtin_memcpy(r.lane, p, static_cast<std::size_t>(n) * sizeof(float));
  return r;
}
inline void store(float* p, const F32& a) { __builtin_memcpy(p, a.lane, sizeof a.lane); }
inline void store_n(float* p, const F32& a, int n) {
  __builtin_memcpy(p, a.lane, static_cast<std::size_t>(n) * sizeof(float));
}

inline F32 add(const F32& a, const F32& b) {
  return map([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline F32 sub(const F32& a, const F32& b) {
  return map([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline F32 mul(const F32& a, const F32& b) {
  return map([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline F32 div(const F32& a, const F32& b) {
  return map([&](int i) { return a.lane[i] / b.lane[i]; });
}
/// a * b + c, rounded once: by the target's instruction where it has one.
inline F32 fma(const F32& a, const F32& b, const F32& c) {
#if defined(__FP_FAST_FMAF) || defined(__aarch64__)
  return map([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
#else
  return map([&](int i) { return kFmaF32(a.lane[i], b.lane[i], c.lane[i]); });
#endif
}
/// The second operand wins if either is NaN (the rule of x86).
inline F32 max(const F32& a, const F32& b) {
  return map([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline F32 min(const F32& a, const F32& b) {
  return map([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}

inline std::int32_t wrap(std::uint32_t x) { return static_cast<std::int32_t>(x); }
inline std::uint32_t bits(std::int32_t x) { return static_cast<std::uint32_t>(x); }

inline I32 add(const I32& a, const I32& b) {
  return map_int([&](int i) { return wrap(bits(a.lane[i]) + bits(b.lane[i])); });
}
inline I32 sub(const I32& a, const I32& b) {
  return map_int([&](int i) { return wrap(bits(a.lane[i]) - bits(b.lane[i])); });
}
inline I32 bit_and(const I32& a, const I32& b) {
  return map_int([&](int i) { return a.lane[i] & b.lane[i]; });
}
inline I32 max(const I32& a, const I32& b) {
  return map_int([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
/// a > b ? x : y
inline F32 select_greater(const I32& a, const I32& b, const F32& x, const F32& y) {
  return map([&](int i) { return a.lane[i] > b.lane[i] ? x.lane[i] : y.lane[i]; });
}
template <int kBits>
inline I32 shift_left(const I32& a) {
  return map_int([&](int i) { return wrap(bits(a.lane[i]) << kBits); });
}
template <int kBits>
inline I32 shift_right(const I32& a) {  // arithmetic
  return map_int([&](int i) { return a.lane[i] >> kBits; });
}
inline F32 to_f32(const I32& a) {
  return map([&](int i) { return static_cast<float>(a.lane[i]); });
}
inline F32 as_f32(const I32& a) {
  F32 r;
  __builtin_memcpy(&r, &a, sizeof r);
  return r;
}
inline I32 as_i32(const F32& a) {
  I32 r;
  __builtin_memcpy(&r, &a, sizeof r);
  return r;
}

/// Sum over lanes as a tree: i with i+8, then i+4, i+2, i+1.
inline float reduce_add(const F32& a) {
  F32 t = a;
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) t.lane[i] = t.lane[i] + t.lane[i + half];
  return t.lane[0];
}
inline std::int32_t reduce_add(const I32& a) {
  std::int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += a.lane[i];
  return sum;
}
inline std::int32_t reduce_max(const I32& a) {
  std::int32_t best = a.lane[0];
  for (int i = 1; i < 16; ++i) best = a.lane[i] > best ? a.lane[i] : best;
  return best;
}
/// Free of NaN, so order does not matter.
inline float reduce_max(const F32& a) {
  float best = a.lane[0];
  for (int i = 1; i < 16; ++i) best = a.lane[i] > best ? a.lane[i] : best;
  return best;
}

inline float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = (std::uint32_t{h} & 0x8000u) << 16;
  const std::uint32_t magnitude = (std::uint32_t{h} & 0x7fffu) << 13;
  float f;
  __builtin_memcpy(&f, &magnitude, sizeof f);
  f *= 0x1.0p112f;  // rebias, normalising subnormals
  std::uint32_t u;
  __builtin_memcpy(&u, &f, sizeof u);
  if (magnitude >= 0x0f800000u) u = magnitude | 0x7f800000u | (magnitude > 0x0f800000u ? 0x00400000u : 0u);
  u |= sign;
  __builtin_memcpy(&f, &u, sizeof f);
  return f;
}
inline std::uint16_t float_to_half(float f) {
  std::uint32_t u;
  __builtin_memcpy(&u, &f, sizeof u);
  const std::uint32_t sign = (u >> 16) & 0x8000u;
  std::uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // adding 0.5 puts the ulp at 2^-24: the FPU rounds the subnormal
    __builtin_memcpy(&f, &magnitude, sizeof f);
    f += 0.5f;
    __builtin_memcpy(&u, &f, sizeof u);
    return static_cast<std::uint16_t>(sign | (u - 0x3f000000u));
  }
  magnitude += 0x00000fffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u) >> 13));
}

inline float half_at(const std::uint8_t* p) {
  std::uint16_t h;
  __builtin_memcpy(&h, p, sizeof h);
  return half_to_float(h);
}
inline F32 load_half(const std::uint16_t* p) {
  return map([=](int i) { return half_to_float(p[i]); });
}
inline void store_half(std::uint16_t* p, const F32& a) {
  for (int i = 0; i < 16; ++i) p[i] = float_to_half(a.lane[i]);
}
inline F32 load_bf16(const std::uint16_t* p) {
  return as_f32(map_int([=](int i) { return wrap(std::uint32_t{p[i]} << 16); }));
}
inline I32 load_int8(const std::int8_t* p) {
  return map_int([=](int i) { return std::int32_t{p[i]}; });
}
inline I32 load_uint8(const std::uint8_t* p) {
  return map_int([=](int i) { return std::int32_t{p[i]}; });
}
/// The low half of each lane.
inline void store_words(std::uint16_t* p, const I32& a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<std::uint16_t>(bits(a.lane[i]));
}
/// The low byte of each lane.
inline void store_bytes(std::int8_t* p, const I32& a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(a.lane[i]);
}

inline bool bf16_dots() { return false; }

inline U8 load_bytes(const std::uint8_t* p) {
  U8 r;
  __builtin_memcpy(&r, p, sizeof r);
  return r;
}
/// acc[i] + sum over j < 4 of (w[4i + j] - kDotBias) * a[j], where a is four signed bytes. kFull: w may exceed 127.
template <bool kFull>
constexpr std::int32_t kDotBias = 0;
template <bool kFull>
inline I32 dot4(const I32& acc, const U8& w, std::int32_t a) {
  std::int8_t s[4];
  __builtin_memcpy(s, &a, sizeof s);
  return map_int([&](int i) {
    std::int32_t sum = acc.lane[i];
    for (int j = 0; j < 4; ++j) sum += std::int32_t{w.byte[4 * i + j]} * s[j];
    return sum;
  });
}

/// dst[j][i] = src[i][j] for 16 x 16 words; rows of src are `stride` words apart.
inline void transpose16(const std::uint32_t* src, std::ptrdiff_t stride, std::uint32_t* dst) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) __builtin_memcpy(dst + 16 * j + i, src + i * stride + j, sizeof *dst);
}

/// 128 nibbles as bytes: byte i of `low` is the entry of code codes[i] & 15 in the table at offsets[i / 32], byte i of
/// `high` that of codes[i] >> 4 in the table at offsets[2 + i / 32]; minus minima[i / 32] and minima[2 + i / 32].
/// With a fifth bit, bit i of `fifths`, 16 more bytes on.
template <Nibbles kKind>
inline void decode_nibbles(const std::uint8_t* codes, const std::uint16_t* offsets, const std::int8_t* tables,
                           const std::uint8_t* minima, const std::uint8_t* fifths, std::uint8_t* low,
                           std::uint8_t* high) {
  const auto fifth = [&](int i) { return kKind == Nibbles::kFives ? (fifths[i / 8] >> i % 8 & 1) << 4 : 0; };
  for (int i = 0; i < 64; ++i) {
    const bool subtracts = kKind != Nibbles::kPlain;
    const int below = subtracts ? minima[i / 32] : 0, above = subtracts ? minima[2 + i / 32] : 0;
    low[i] = static_cast<std::uint8_t>(tables[offsets[i / 32] + (codes[i] & 15) + fifth(i)] - below);
    high[i] = static_cast<std::uint8_t>(tables[offsets[2 + i / 32] + (codes[i] >> 4) + fifth(64 + i)] - above);
  }
}

// Shuffles within groups of four lanes, and the interleaving of two vectors, for attention of few queries.
/// The first kSpan (2 or 4) floats, repeated.
template <int kSpan>
inline F32 load_span(const float* p) {
  return map([=](int i) { return p[i % kSpan]; });
}
/// Broadcasts lane kLane of every group of kSpan to all lanes of the group.
template <int kSpan, int kLane>
inline F32 spread(const F32& a) {
  return map([&](int i) { return a.lane[i / kSpan * kSpan + kLane]; });
}
inline F32 swap_pairs(const F32& a) {
  return map([&](int i) { return a.lane[i ^ 1]; });
}
inline F32 swap_halves(const F32& a) {
  return map([&](int i) { return a.lane[i ^ 2]; });
}
/// a0 b0 a1 b1 ...: 32 floats.
inline void store_zipped(float* p, const F32& a, const F32& b) {
  for (int i = 0; i < 16; ++i) {
    p[2 * i] = a.lane[i];
    p[2 * i + 1] = b.lane[i];
  }
}

// Eight lanes of 64 bits, for reductions in double precision and for random numbers.
struct F64 {
  double lane[8];
};
struct I64 {
  std::uint64_t lane[8];
};

template <class Op>
inline F64 map_wide(Op op) {
  F64 r;
  for (int i = 0; i < 8; ++i) r.lane[i] = op(i);
  return r;
}
template <class Op>
inline I64 map_long(Op op) {
  I64 r;
  for (int i = 0; i < 8; ++i) r.lane[i] = op(i);
  return r;
}
inline F64 set1(double x) {
  return map_wide([=](int) { return x; });
}
inline I64 set1(std::int64_t x) {
  return map_long([=](int) { return static_cast<std::uint64_t>(x); });
}
inline F64 load_wide(const float* p) {
  return map_wide([=](int i) { return static_cast<double>(p[i]); });
}
inline F64 add(const F64& a, const F64& b) {
  return map_wide([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline F64 sub(const F64& a, const F64& b) {
  return map_wide([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline F64 mul(const F64& a, const F64& b) {
  return map_wide([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline F64 fma(const F64& a, const F64& b, const F64& c) {
#if defined(__FP_FAST_FMA) || defined(__aarch64__)
  return map_wide([&](int i) { return __builtin_fma(a.lane[i], b.lane[i], c.lane[i]); });
#else
  return map_wide([&](int i) { return kFmaF64(a.lane[i], b.lane[i], c.lane[i]); });
#endif
}
/// a > b ? x : y; y where a or b is NaN
inline F64 select_greater(const F64& a, const F64& b, const F64& x, const F64& y) {
  return map_wide([&](int i) { return a.lane[i] > b.lane[i] ? x.lane[i] : y.lane[i]; });
}
inline F64 as_f64(const I64& a) {
  F64 r;
  __builtin_memcpy(&r, &a, sizeof r);
  return r;
}
inline I64 as_i64(const F64& a) {
  I64 r;
  __builtin_memcpy(&r, &a, sizeof r);
  return r;
}
inline I64 add(const I64& a, const I64& b) {
  return map_long([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline I64 bit_and(const I64& a, const I64& b) {
  return map_long([&](int i) { return a.lane[i] & b.lane[i]; });
}
inline I64 bit_or(const I64& a, const I64& b) {
  return map_long([&](int i) { return a.lane[i] | b.lane[i]; });
}
inline I64 bit_xor(const I64& a, const I64& b) {
  return map_long([&](int i) { return a.lane[i] ^ b.lane[i]; });
}
template <int kBits>
inline I64 shift_left(const I64& a) {
  return map_long([&](int i) { return a.lane[i] << kBits; });
}
template <int kBits>
inline I64 shift_right(const I64& a) {  // logical
  return map_long([&](int i) { return a.lane[i] >> kBits; });
}
/// Product of the low halves.
inline I64 mul_low(const I64& a, const I64& b) {
  return map_long([&](int i) { return (a.lane[i] & 0xffffffffu) * (b.lane[i] & 0xffffffffu); });
}
/// Sum over lanes as a tree: i with i+4, then i+2, i+1.
inline double reduce_add(const F64& a) {
  F64 t = a;
  for (int half = 4; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) t.lane[i] = t.lane[i] + t.lane[i + half];
  return t.lane[0];
}
/// First lane with a >= b (false for NaN), or 16.
inline int first_at_least(const F32& a, const F32& b) {
  int i = 0;
  while (i < 16 && !(a.lane[i] >= b.lane[i])) ++i;
  return i;
}
/// First lane in which a < b does not hold (NaN counts), or 8.
inline int first_not_less(const F64& a, const F64& b) {
  int i = 0;
  while (i < 8 && a.lane[i] < b.lane[i]) ++i;
  return i;
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
