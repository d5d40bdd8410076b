#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/super.h"

// AVX2 + FMA + F16C (Haswell, Zen and later); a vector of 16 lanes is two registers. With DLLM_AVX_VNNI also the
// 256-bit VPDPBUSD of processors without AVX-512 (Alder Lake and later).

#define DLLM_PANEL_TILES  // panels-inl.h
#ifndef DLLM_AVX_VNNI
#define DLLM_WORD_PRODUCTS  // super-words-inl.h
#endif

namespace dllm::cpu::DLLM_ISA {
namespace {

// 16 registers. Float tile: 6 x 2 accumulators, 2 for the weights, 1 broadcast. Int8 tile: 4 x 2 integer accumulators,
// 2 weights, 1 broadcast and temporaries; its float accumulators are in L1.
constexpr int kFloatRows = 6;
constexpr int kFloatGroups = 1, kFloatPanels = 1;
constexpr int kInt8Rows = 4;
// Attention tile: 4 x 2 registers of accumulators, 2 of queries, 1 broadcast: 6 loads for 8 fma. Six keys would also
// fit, but do not divide the tile of keys.
constexpr int kAttentionKeys = 4;
constexpr int kAttentionVectors = 1;

struct F32 {
  __m256 lo, hi;
};
struct I32 {
  __m256i lo, hi;
};
struct U8 {
  __m256i lo, hi;
};

inline __m256i mask_of(int n, int origin) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - origin), index);
}
inline __m256i load_int(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void store_int(void* p, __m256i a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a); }

inline F32 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline I32 set1(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline F32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline F32 load_n(const float* p, int n) {
  if (n >= 16) return load(p);
  return {_mm256_maskload_ps(p, mask_of(n, 0)), _mm256_maskload_ps(p + 8, mask_of(n, 8))};
}
inline void store(float* p, F32 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
/// Masked stores of whole vectors made products 3 to 5 % slower (Zen 4, research/lab/performance-tiles.md).
inline void store_n(float* p, F32 a, int n) {
  if (n >= 16) return store(p, a);
  _mm256_maskstore_ps(p, mask_of(n, 0), a.lo);
  _mm256_maskstore_ps(p + 8, mask_of(n, 8), a.hi);
}

inline F32 add(F32 a, F32 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline F32 sub(F32 a, F32 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline F32 mul(F32 a, F32 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline F32 div(F32 a, F32 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline F32 fma(F32 a, F32 b, F32 c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
inline F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }

inline I32 add(I32 a, I32 b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
inline I32 sub(I32 a, I32 b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
inline I32 bit_and(I32 a, I32 b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
inline I32 max(I32 a, I32 b) { return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }
/// a > b ? x : y
inline F32 select_greater(I32 a, I32 b, F32 x, F32 y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_castsi256_ps(_mm256_cmpgt_epi32(a.lo, b.lo))),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_castsi256_ps(_mm256_cmpgt_epi32(a.hi, b.hi)))};
}
template <int kBits>
inline I32 shift_left(I32 a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
template <int kBits>
inline I32 shift_right(I32 a) {
  return {_mm256_srai_epi32(a.lo, kBits), _mm256_srai_epi32(a.hi, kBits)};
}
inline F32 to_f32(I32 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline F32 as_f32(I32 a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
inline I32 as_i32(F32 a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }

inline float reduce_add(F32 a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline std::int32_t reduce_add(I32 a) {
  const __m256i eight = _mm256_add_epi32(a.lo, a.hi);
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
inline std::int32_t reduce_max(I32 a) {
  const __m256i eight = _mm256_max_epi32(a.lo, a.hi);
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
inline float reduce_max(F32 a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline __m128i load_8_words(const std::uint16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline float half_at(const std::uint8_t* p) {
  std::uint16_t h;
  __builtin_memcpy(&h, p, sizeof h);
  return _cvtsh_ss(h);
}
inline F32 load_half(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(load_8_words(p)), _mm256_cvtph_ps(load_8_words(p + 8))};
}
inline void store_half(std::uint16_t* p, F32 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
inline __m256 widen_bf16(const std::uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_8_words(p)), 16));
}
inline F32 load_bf16(const std::uint16_t* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
inline I32 load_int8(const std::int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
inline I32 load_uint8(const std::uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
/// The low half of each lane.
inline void store_words(std::uint16_t* p, I32 a) {
  // Cleared high halves keep the pack from saturating; the permutation undoes its interleaving of halves.
  const __m256i low = _mm256_set1_epi32(0xffff);
  const __m256i words = _mm256_packus_epi32(_mm256_and_si256(a.lo, low), _mm256_and_si256(a.hi, low));
  store_int(p, _mm256_permute4x64_epi64(words, 0xd8));
}
inline void store_bytes(std::int8_t* p, I32 a) {
  // |lane| <= 127, so the saturating packs keep the values; the permutation undoes their interleaving of halves.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

inline bool bf16_dots() { return false; }

inline U8 load_bytes(const std::uint8_t* p) { return {load_int(p), load_int(p + 32)}; }
template <bool kFull>
constexpr std::int32_t kDotBias = 0;

/// VPMADDUBSW saturates its 16-bit pair sums: with w <= 128 they stay below 2 * 128 * 127 = 32512 and are exact. Full
/// bytes are therefore taken as (w & 127) + (w & 128), which costs a second pass for Q8_0 only.
template <bool kFull>
inline __m256i dot4_half(__m256i acc, __m256i w, __m256i a) {
#ifdef DLLM_AVX_VNNI
  return _mm256_dpbusd_avx_epi32(acc, w, a);
#else
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (!kFull) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), ones));
  } else {
    const __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(w, _mm256_set1_epi8(127)), a);
    const __m256i high = _mm256_maddubs_epi16(_mm256_andnot_si256(_mm256_set1_epi8(127), w), a);
    const __m256i both = _mm256_add_epi32(_mm256_madd_epi16(low, ones), _mm256_madd_epi16(high, ones));
    return _mm256_add_epi32(acc, both);
  }
#endif
}
template <bool kFull>
inline I32 dot4(I32 acc, U8 w, std::int32_t a) {
  const __m256i four = _mm256_set1_epi32(a);
  return {dot4_half<kFull>(acc.lo, w.lo, four), dot4_half<kFull>(acc.hi, w.hi, four)};
}

inline void transpose8(const std::uint32_t* src, std::ptrdiff_t stride, std::uint32_t* dst) {
  __m256i r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = load_int(src + i * stride);
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    const __m256i a = _mm256_unpacklo_epi32(r[i], r[i + 1]), b = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    const __m256i c = _mm256_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm256_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm256_unpacklo_epi64(a, c);
    t[i + 1] = _mm256_unpackhi_epi64(a, c);
    t[i + 2] = _mm256_unpacklo_epi64(b, d);
    t[i + 3] = _mm256_unpackhi_epi64(b, d);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    store_int(dst + 16 * i, _mm256_permute2x128_si256(t[i], t[i + 4], 0x20));
    store_int(dst + 16 * (i + 4), _mm256_permute2x128_si256(t[i], t[i + 4], 0x31));
  }
}
inline void transpose16(const std::uint32_t* src, std::ptrdiff_t stride, std::uint32_t* dst) {
  transpose8(src, stride, dst);
  transpose8(src + 8, stride, dst + 8 * 16);
  transpose8(src + 8 * stride, stride, dst + 8);
  transpose8(src + 8 * stride + 8, stride, dst + 8 * 16 + 8);
}

// Shuffles within groups of four lanes, and the interleaving of two vectors, for attention of few queries.
template <int kSpan>
inline F32 load_span(const float* p) {
  if constexpr (kSpan == 4) {
    const __m256 four = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(p));
    return {four, four};
  }
  double two;
  __builtin_memcpy(&two, p, sizeof two);
  const __m256 both = _mm256_castpd_ps(_mm256_set1_pd(two));
  return {both, both};
}
template <int kSpan, int kLane>
inline F32 spread(F32 a) {
  if constexpr (kSpan == 4) return {_mm256_permute_ps(a.lo, kLane * 0x55), _mm256_permute_ps(a.hi, kLane * 0x55)};
  if constexpr (kLane == 0) return {_mm256_moveldup_ps(a.lo), _mm256_moveldup_ps(a.hi)};
  return {_mm256_movehdup_ps(a.lo), _mm256_movehdup_ps(a.hi)};
}
inline F32 swap_pairs(F32 a) { return {_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)}; }
inline F32 swap_halves(F32 a) { return {_mm256_permute_ps(a.lo, 0x4e), _mm256_permute_ps(a.hi, 0x4e)}; }
inline void store_zipped_half(float* p, __m256 a, __m256 b) {
  const __m256 low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
  _mm256_storeu_ps(p, _mm256_permute2f128_ps(low, high, 0x20));
  _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(low, high, 0x31));
}
inline void store_zipped(float* p, F32 a, F32 b) {
  store_zipped_half(p, a.lo, b.lo);
  store_zipped_half(p + 16, a.hi, b.hi);
}

// Eight lanes of 64 bits, for reductions in double precision and for random numbers.
struct F64 {
  __m256d lo, hi;
};
struct I64 {
  __m256i lo, hi;
};

inline F64 set1(double x) { return {_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
inline I64 set1(std::int64_t x) { return {_mm256_set1_epi64x(x), _mm256_set1_epi64x(x)}; }
inline F64 load_wide(const float* p) {
  return {_mm256_cvtps_pd(_mm_loadu_ps(p)), _mm256_cvtps_pd(_mm_loadu_ps(p + 4))};
}
inline F64 add(F64 a, F64 b) { return {_mm256_add_pd(a.lo, b.lo), _mm256_add_pd(a.hi, b.hi)}; }
inline F64 sub(F64 a, F64 b) { return {_mm256_sub_pd(a.lo, b.lo), _mm256_sub_pd(a.hi, b.hi)}; }
inline F64 mul(F64 a, F64 b) { return {_mm256_mul_pd(a.lo, b.lo), _mm256_mul_pd(a.hi, b.hi)}; }
inline F64 fma(F64 a, F64 b, F64 c) { return {_mm256_fmadd_pd(a.lo, b.lo, c.lo), _mm256_fmadd_pd(a.hi, b.hi, c.hi)}; }
inline F64 select_greater(F64 a, F64 b, F64 x, F64 y) {
  return {_mm256_blendv_pd(y.lo, x.lo, _mm256_cmp_pd(a.lo, b.lo, _CMP_GT_OQ)),
          _mm256_blendv_pd(y.hi, x.hi, _mm256_cmp_pd(a.hi, b.hi, _CMP_GT_OQ))};
}
inline F64 as_f64(I64 a) { return {_mm256_castsi256_pd(a.lo), _mm256_castsi256_pd(a.hi)}; }
inline I64 as_i64(F64 a) { return {_mm256_castpd_si256(a.lo), _mm256_castpd_si256(a.hi)}; }
inline I64 add(I64 a, I64 b) { return {_mm256_add_epi64(a.lo, b.lo), _mm256_add_epi64(a.hi, b.hi)}; }
inline I64 bit_and(I64 a, I64 b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
inline I64 bit_or(I64 a, I64 b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
inline I64 bit_xor(I64 a, I64 b) { return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)}; }
template <int kBits>
inline I64 shift_left(I64 a) {
  return {_mm256_slli_epi64(a.lo, kBits), _mm256_slli_epi64(a.hi, kBits)};
}
template <int kBits>
inline I64 shift_right(I64 a) {
  return {_mm256_srli_epi64(a.lo, kBits), _mm256_srli_epi64(a.hi, kBits)};
}
inline I64 mul_low(I64 a, I64 b) { return {_mm256_mul_epu32(a.lo, b.lo), _mm256_mul_epu32(a.hi, b.hi)}; }
inline double reduce_add(F64 a) {
  const __m256d four = _mm256_add_pd(a.lo, a.hi);
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}
inline int lane_index(int mask, int lanes) { return mask == 0 ? lanes : __builtin_ctz(static_cast<unsigned>(mask)); }
inline int first_at_least(F32 a, F32 b) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ));
  return lane_index(low | _mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ)) << 8, 16);
}
inline int first_not_less(F64 a, F64 b) {
  const int low = _mm256_movemask_pd(_mm256_cmp_pd(a.lo, b.lo, _CMP_NLT_UQ));
  return lane_index(low | _mm256_movemask_pd(_mm256_cmp_pd(a.hi, b.hi, _CMP_NLT_UQ)) << 4, 8);
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA

#include "cpu/kernels/simd_avx2_dots.h"
