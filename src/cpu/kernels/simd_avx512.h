#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "base/instruction_set.h"
#include "cpu/kernels/super.h"

// AVX-512 F/BW/VL/DQ/VNNI (Ice Lake, Zen 4 and later).

#define DLLM_PAIR_TILES  // pairs-inl.h

namespace dllm::cpu::DLLM_ISA {
namespace {

// 32 registers. Float tile: 12 accumulators + weight; multipliers come as embedded broadcasts. Int8 tile: 8 integer
// and 8 float accumulators, weight, scale and temporaries.
constexpr int kFloatRows = 12;
constexpr int kFloatGroups = 2, kFloatPanels = 2;
constexpr int kInt8Rows = 8;
// Attention tile: 8 x 2 accumulators, 2 vectors of queries, 1 broadcast: 10 loads for 16 fma, so that the two load
// ports keep up with the two FMA units, and 16 chains cover their latency of 4.
constexpr int kAttentionKeys = 8;
constexpr int kAttentionVectors = 2;

struct F32 {
  __m512 v;
};
struct I32 {
  __m512i v;
};
struct U8 {
  __m512i v;
};

inline __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

inline F32 set1(float x) { return {_mm512_set1_ps(x)}; }
inline I32 set1(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
inline F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline F32 load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
inline void store(float* p, F32 a) { _mm512_storeu_ps(p, a.v); }
inline void store_n(float* p, F32 a, int n) { _mm512_mask_storeu_ps(p, first(n), a.v); }

inline F32 add(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32 sub(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32 mul(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32 div(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }

inline I32 add(I32 a, I32 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline I32 sub(I32 a, I32 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline I32 bit_and(I32 a, I32 b) { return {_mm512_and_si512(a.v, b.v)}; }
inline I32 max(I32 a, I32 b) { return {_mm512_max_epi32(a.v, b.v)}; }
/// a > b ? x : y
inline F32 select_greater(I32 a, I32 b, F32 x, F32 y) {
  return {_mm512_mask_blend_ps(_mm512_cmpgt_epi32_mask(a.v, b.v), y.v, x.v)};
}
template <int kBits>
inline I32 shift_left(I32 a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
template <int kBits>
inline I32 shift_right(I32 a) {
  return {_mm512_srai_epi32(a.v, kBits)};
}
inline F32 to_f32(I32 a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline F32 as_f32(I32 a) { return {_mm512_castsi512_ps(a.v)}; }
inline I32 as_i32(F32 a) { return {_mm512_castps_si512(a.v)}; }

inline float reduce_add(F32 a) {
  const __m256 high = _mm512_extractf32x8_ps(a.v, 1);
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline std::int32_t reduce_add(I32 a) { return _mm512_reduce_add_epi32(a.v); }
inline std::int32_t reduce_max(I32 a) { return _mm512_reduce_max_epi32(a.v); }
inline float reduce_max(F32 a) { return _mm512_reduce_max_ps(a.v); }

inline float half_at(const std::uint8_t* p) {
  std::uint16_t h;
  __builtin_memcpy(&h, p, sizeof h);
  return _cvtsh_ss(h);
}
inline F32 load_half(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline void store_half(std::uint16_t* p, F32 a) {
  const __m256i h = _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h);
}
inline F32 load_bf16(const std::uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline I32 load_int8(const std::int8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline I32 load_uint8(const std::uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
/// The low half of each lane.
inline void store_words(std::uint16_t* p, I32 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a.v));
}
inline void store_bytes(std::int8_t* p, I32 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}

#define DLLM_BF16_DOTS
inline bool bf16_dots() { return runs(InstructionSet::kAvx512Bf16); }
/// sum + w x of pairs of BF16 numbers: the odd one's product first. As text, so that the set needs no more than the
/// instructions that every processor with AVX-512 VNNI has.
inline F32 dot_bf16(F32 sum, F32 w, F32 x) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.v) : "v"(w.v), "v"(x.v));
  return sum;
}

/// 32 words.
struct Words {
  __m512i v;
};
inline Words set_words(int x) { return {_mm512_set1_epi16(static_cast<short>(x))}; }
inline Words load_words(const std::uint16_t* p) { return {_mm512_loadu_si512(p)}; }
inline void store(std::uint16_t* p, Words a) { _mm512_storeu_si512(p, a.v); }
inline Words add_words(Words a, Words b) { return {_mm512_add_epi16(a.v, b.v)}; }
inline Words max_words(Words a, Words b) { return {_mm512_max_epu16(a.v, b.v)}; }
inline Words min_words(Words a, Words b) { return {_mm512_min_epu16(a.v, b.v)}; }
inline bool any_greater(Words a, Words b) { return _mm512_cmpgt_epu16_mask(a.v, b.v) != 0; }
inline Words pick(Words index, Words a) { return {_mm512_permutexvar_epi16(index.v, a.v)}; }
inline F32 as_f32(Words a) { return {_mm512_castsi512_ps(a.v)}; }
/// a0 b0 a1 b1 ..., of the first and of the last 16.
inline __m512i zip_order() {
  return _mm512_add_epi32(_mm512_set1_epi32(0x00200000),
                          _mm512_mullo_epi32(_mm512_set1_epi32(0x00010001),
                                             _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
}
inline Words zip_low(Words a, Words b) { return {_mm512_permutex2var_epi16(a.v, zip_order(), b.v)}; }
inline Words zip_high(Words a, Words b) {
  return {_mm512_permutex2var_epi16(a.v, _mm512_add_epi16(zip_order(), _mm512_set1_epi16(16)), b.v)};
}
/// Rounded to nearest even; subnormal numbers become zero.
inline Words to_bf16_words(F32 first, F32 second) {
  Words r;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(r.v) : "v"(first.v), "v"(second.v));
  return r;
}

inline U8 load_bytes(const std::uint8_t* p) { return {_mm512_loadu_si512(p)}; }
template <bool kFull>
constexpr std::int32_t kDotBias = 0;
template <bool kFull>
inline I32 dot4(I32 acc, U8 w, std::int32_t a) {
  return {_mm512_dpbusd_epi32(acc.v, w.v, _mm512_set1_epi32(a))};
}

inline void transpose16(const std::uint32_t* src, std::ptrdiff_t stride, std::uint32_t* dst) {
  __m512i r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(src + i * stride);
  // 4 x 4 blocks within each 128-bit lane, then the lanes themselves.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]), b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);
    t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
    const __m512i c = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd), d = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
    _mm512_storeu_si512(dst + 16 * i, _mm512_shuffle_i32x4(a, b, 0x88));
    _mm512_storeu_si512(dst + 16 * (i + 8), _mm512_shuffle_i32x4(a, b, 0xdd));
    _mm512_storeu_si512(dst + 16 * (i + 4), _mm512_shuffle_i32x4(c, d, 0x88));
    _mm512_storeu_si512(dst + 16 * (i + 12), _mm512_shuffle_i32x4(c, d, 0xdd));
  }
}

inline __m512i two_tables(const std::int8_t* a, const std::int8_t* b) {
  const __m512i both = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(a)));
  return _mm512_mask_broadcast_i32x4(both, 0xff00, _mm_load_si128(reinterpret_cast<const __m128i*>(b)));
}
template <Nibbles kKind>
inline void decode_nibbles(const std::uint8_t* codes, const std::uint16_t* offsets, const std::int8_t* tables,
                           const std::uint8_t* minima, const std::uint8_t* fifths, std::uint8_t* low,
                           std::uint8_t* high) {
  const __m512i both = _mm512_loadu_si512(codes), fifteen = _mm512_set1_epi8(15);
  const __m512i below = _mm512_and_si512(both, fifteen), above = _mm512_and_si512(_mm512_srli_epi16(both, 4), fifteen);
  const __m512i first = two_tables(tables + offsets[0], tables + offsets[1]);
  const __m512i second = two_tables(tables + offsets[2], tables + offsets[3]);
  __m512i w0 = _mm512_shuffle_epi8(first, below), w1 = _mm512_shuffle_epi8(second, above);
  if constexpr (kKind == Nibbles::kFives) {
    std::uint64_t masks[2];
    __builtin_memcpy(masks, fifths, sizeof masks);
    w0 = _mm512_mask_shuffle_epi8(w0, masks[0], two_tables(tables + offsets[0] + 16, tables + offsets[1] + 16), below);
    w1 = _mm512_mask_shuffle_epi8(w1, masks[1], two_tables(tables + offsets[2] + 16, tables + offsets[3] + 16), above);
  }
  if constexpr (kKind != Nibbles::kPlain) {
    std::int32_t four;
    __builtin_memcpy(&four, minima, sizeof four);
    const __m512i all = _mm512_set1_epi32(four);
    const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi8(1);
    const __m512i byte = _mm512_inserti64x4(_mm512_castsi256_si512(zero), one, 1);  // 0 for the first 32, else 1
    w0 = _mm512_sub_epi8(w0, _mm512_shuffle_epi8(all, byte));
    w1 = _mm512_sub_epi8(w1, _mm512_shuffle_epi8(all, _mm512_add_epi8(byte, _mm512_set1_epi8(2))));
  }
  _mm512_storeu_si512(low, w0);
  _mm512_storeu_si512(high, w1);
}

// Shuffles within groups of four lanes, and the interleaving of two vectors, for attention of few queries.
template <int kSpan>
inline F32 load_span(const float* p) {
  if constexpr (kSpan == 4) return {_mm512_broadcast_f32x4(_mm_loadu_ps(p))};
  double two;
  __builtin_memcpy(&two, p, sizeof two);
  return {_mm512_castpd_ps(_mm512_set1_pd(two))};
}
template <int kSpan, int kLane>
inline F32 spread(F32 a) {
  if constexpr (kSpan == 4) return {_mm512_permute_ps(a.v, kLane * 0x55)};
  return {kLane == 0 ? _mm512_moveldup_ps(a.v) : _mm512_movehdup_ps(a.v)};
}
inline F32 swap_pairs(F32 a) { return {_mm512_permute_ps(a.v, 0xb1)}; }
inline F32 swap_halves(F32 a) { return {_mm512_permute_ps(a.v, 0x4e)}; }
inline void store_zipped(float* p, F32 a, F32 b) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  _mm512_storeu_ps(p, _mm512_permutex2var_ps(a.v, low, b.v));
  _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(a.v, high, b.v));
}

// Eight lanes of 64 bits, for reductions in double precision and for random numbers.
struct F64 {
  __m512d v;
};
struct I64 {
  __m512i v;
};

inline F64 set1(double x) { return {_mm512_set1_pd(x)}; }
inline I64 set1(std::int64_t x) { return {_mm512_set1_epi64(x)}; }
inline F64 load_wide(const float* p) { return {_mm512_cvtps_pd(_mm256_loadu_ps(p))}; }
inline F64 add(F64 a, F64 b) { return {_mm512_add_pd(a.v, b.v)}; }
inline F64 sub(F64 a, F64 b) { return {_mm512_sub_pd(a.v, b.v)}; }
inline F64 mul(F64 a, F64 b) { return {_mm512_mul_pd(a.v, b.v)}; }
inline F64 fma(F64 a, F64 b, F64 c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
inline F64 select_greater(F64 a, F64 b, F64 x, F64 y) {
  return {_mm512_mask_blend_pd(_mm512_cmp_pd_mask(a.v, b.v, _CMP_GT_OQ), y.v, x.v)};
}
inline F64 as_f64(I64 a) { return {_mm512_castsi512_pd(a.v)}; }
inline I64 as_i64(F64 a) { return {_mm512_castpd_si512(a.v)}; }
inline I64 add(I64 a, I64 b) { return {_mm512_add_epi64(a.v, b.v)}; }
inline I64 bit_and(I64 a, I64 b) { return {_mm512_and_si512(a.v, b.v)}; }
inline I64 bit_or(I64 a, I64 b) { return {_mm512_or_si512(a.v, b.v)}; }
inline I64 bit_xor(I64 a, I64 b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int kBits>
inline I64 shift_left(I64 a) {
  return {_mm512_slli_epi64(a.v, kBits)};
}
template <int kBits>
inline I64 shift_right(I64 a) {
  return {_mm512_srli_epi64(a.v, kBits)};
}
inline I64 mul_low(I64 a, I64 b) { return {_mm512_mul_epu32(a.v, b.v)}; }
inline double reduce_add(F64 a) {
  const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(a.v), _mm512_extractf64x4_pd(a.v, 1));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}
inline int lane_index(unsigned mask, int lanes) { return mask == 0 ? lanes : __builtin_ctz(mask); }
inline int first_at_least(F32 a, F32 b) { return lane_index(_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ), 16); }
inline int first_not_less(F64 a, F64 b) { return lane_index(_mm512_cmp_pd_mask(a.v, b.v, _CMP_NLT_UQ), 8); }

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
