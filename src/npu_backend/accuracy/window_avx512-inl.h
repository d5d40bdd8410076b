#pragma once

// The integer windows with AVX-512. Included once per instruction set by a source that defines DLLM_WINDOW_ISA and is
// compiled with that set's flags; the float windows are those of window_kernel-inl.h.
//
// Sums of a group are exact in any order, so narrow elements are multiplied in pairs (VPMADDWD, or VPDPWSSD, which also
// adds), bytes in fours and wide ones with FMA in float64. A group is shifted without loss, and without the sticky
// bit's six instructions, if its exponent is at most `guard` below the reference in all lanes.

#include <immintrin.h>

#include <algorithm>
#include <vector>

#define DLLM_WINDOW_OWN_INTEGERS
#include "npu_backend/accuracy/window_kernel-inl.h"

namespace dllm::npu::accuracy {
namespace DLLM_WINDOW_ISA {
namespace {

constexpr std::int32_t kNone = -100000;

/// Of a group, by output.
[[gnu::always_inline]] inline __m512i exponents(const std::int16_t* at) {
  return _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

/// v / 2^by toward minus infinity, with the last bit set if anything was lost.
[[gnu::always_inline]] inline __m512i sticky(__m512i v, __m512i by) {
  const __m512i shift = _mm512_min_epi32(_mm512_max_epi32(by, _mm512_setzero_si512()), _mm512_set1_epi32(31));
  const __m512i kept = _mm512_srav_epi32(v, shift);
  const __mmask16 lost = _mm512_cmpneq_epi32_mask(_mm512_sllv_epi32(kept, shift), v);
  return _mm512_mask_or_epi32(kept, lost, kept, _mm512_set1_epi32(1));
}
[[gnu::always_inline]] inline __m512i sticky_wide(__m512i v, __m512i by) {
  const __m512i shift = _mm512_min_epi64(_mm512_max_epi64(by, _mm512_setzero_si512()), _mm512_set1_epi64(63));
  const __m512i kept = _mm512_srav_epi64(v, shift);
  const __mmask8 lost = _mm512_cmpneq_epi64_mask(_mm512_sllv_epi64(kept, shift), v);
  return _mm512_mask_or_epi64(kept, lost, kept, _mm512_set1_epi64(1));
}

/// sum += pairs of a times pairs of w.
[[gnu::always_inline]] inline __m512i add_pairs(__m512i sum, __m512i a, __m512i w) {
#ifdef __AVX512VNNI__
  return _mm512_dpwssd_epi32(sum, a, w);
#else
  return _mm512_add_epi32(sum, _mm512_madd_epi16(a, w));
#endif
}

/// Largest exponents of the groups [begin, end) and of `top`, without those in which one side has only zeros.
template <int kRows>
[[gnu::always_inline]] inline void raise(__m512i (&top)[kRows], const WindowProduct& p, const std::int16_t* ea,
                                         std::int32_t begin, std::int32_t end) {
  const __m512i lowest = _mm512_set1_epi32(kLowestNumber);
  for (std::int32_t g = begin; g < end; ++g) {
    const __m512i ew = exponents(p.w_exponents + g * kPanel);
    for (int r = 0; r < kRows; ++r) {
      const __m512i e = _mm512_add_epi32(ew, _mm512_set1_epi32(ea[r * p.a_exponents_stride + g]));
      top[r] = _mm512_mask_max_epi32(top[r], _mm512_cmpgt_epi32_mask(e, lowest), top[r], e);
    }
  }
}

/// The rows' elements of a call as int16 or float64, so that they can be memory operands; zeros fill up pairs.
template <class T>
const T* converted(const WindowProduct& p, std::int64_t first, std::int64_t rows, std::int64_t stride) {
  thread_local std::vector<T> buffer;
  buffer.resize(static_cast<std::size_t>(rows * stride));
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* a = p.a + (first + r) * p.a_stride;
    T* to = buffer.data() + r * stride;
    const std::int64_t terms = std::min(stride, p.a_stride);
    for (std::int64_t k = 0; k < terms; ++k) to[k] = static_cast<T>(a[k]);
    std::fill(to + terms, to + stride, T{0});
  }
  return buffer.data();
}

/// [k][16], [k + 1][16] to [16][2]
alignas(64) constexpr std::int16_t kZip[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                               8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};

/// Windows of 32 bits; group(g, sum) adds the products of a group to zeros.
template <int kRows, class Group>
[[gnu::always_inline]] inline void add_groups(const WindowRule& rule, const WindowProduct& p, std::int64_t first,
                                              double* sums, const Group& group) {
  const std::int16_t* ea = p.a_exponents + first * p.a_exponents_stride;
  const __m512i guard = _mm512_set1_epi32(rule.guard);
  __m512i value[kRows], reference[kRows];
  for (int r = 0; r < kRows; ++r) value[r] = _mm512_setzero_si512(), reference[r] = _mm512_set1_epi32(kNone);
  std::int32_t begin = 0;
  for (std::int64_t i = 0; i < p.instructions; ++i) {
    const std::int32_t end = p.ends[i];
    __m512i top[kRows];
    for (int r = 0; r < kRows; ++r) top[r] = reference[r];
    raise(top, p, ea, begin, end);
    for (int r = 0; r < kRows; ++r) {
      value[r] = sticky(value[r], _mm512_sub_epi32(top[r], reference[r]));
      reference[r] = top[r];
    }
    for (std::int32_t g = begin; g < end; ++g) {
      __m512i sum[kRows];
      group(g, sum);
      const __m512i ew = exponents(p.w_exponents + g * kPanel);
      for (int r = 0; r < kRows; ++r) {
        const __m512i e = _mm512_add_epi32(ew, _mm512_set1_epi32(ea[r * p.a_exponents_stride + g])),
                      by = _mm512_sub_epi32(reference[r], e);
        __m512i added;
        if (_mm512_cmpgt_epi32_mask(by, guard) == 0)
          added = _mm512_sllv_epi32(sum[r], _mm512_sub_epi32(guard, by));
        else
          added = sticky(_mm512_sllv_epi32(sum[r], guard), by);
        value[r] = _mm512_add_epi32(value[r], added);
      }
    }
    begin = end;
  }
  for (int r = 0; r < kRows; ++r) {
    alignas(64) std::int32_t values[kPanel], references[kPanel];
    _mm512_store_si512(values, value[r]);
    _mm512_store_si512(references, reference[r]);
    for (int lane = 0; lane < kPanel; ++lane)
      sums[r * kPanel + lane] = references[lane] > kHighestNumber
                                    ? __builtin_nan("")
                                    : scaled<std::int32_t>(values[lane], references[lane] - rule.guard - rule.fraction);
  }
}

template <int kRows>
void add_narrow_rows(const WindowRule& rule, const WindowProduct& p, std::int64_t first, double* sums) {
  const std::int64_t stride = p.a_stride + p.a_stride % 2;
  const std::int16_t* a = converted<std::int16_t>(p, first, kRows, stride);
  const __m512i zip = _mm512_load_si512(kZip);
  add_groups<kRows>(rule, p, first, sums, [&](std::int32_t g, __m512i* sum) __attribute__((always_inline)) {
    if (p.group == 1) {
      const __m512i w = _mm512_cvtepu16_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p.narrow + g * kPanel)));  // pairs with 0
      for (int r = 0; r < kRows; ++r)
        sum[r] = _mm512_madd_epi16(_mm512_set1_epi32(static_cast<std::uint16_t>(a[r * stride + g])), w);
      return;
    }
    for (int r = 0; r < kRows; ++r) sum[r] = _mm512_setzero_si512();
    for (std::int64_t k = g * p.group; k < (g + 1) * p.group; k += 2) {
      const __m512i w = _mm512_permutexvar_epi16(zip, _mm512_loadu_si512(p.narrow + k * kPanel));
      for (int r = 0; r < kRows; ++r) {
        std::int32_t pair;
        __builtin_memcpy(&pair, a + r * stride + k, sizeof pair);
        sum[r] = add_pairs(sum[r], _mm512_set1_epi32(pair), w);
      }
    }
  });
}

#ifdef __AVX512VNNI__
/// VPDPBUSD multiplies four pairs of bytes, of which the first are unsigned: (a + 128) w, less 128 times the sum of w.
template <int kRows>
void add_byte_rows(const WindowRule& rule, const WindowProduct& p, std::int64_t first, double* sums) {
  const std::uint8_t* a = p.a_bytes + first * p.a_stride;
  add_groups<kRows>(rule, p, first, sums, [&](std::int32_t g, __m512i* sum) __attribute__((always_inline)) {
    const __m512i offset = _mm512_loadu_si512(p.offsets + g * kPanel);
    for (int r = 0; r < kRows; ++r) sum[r] = offset;
    for (std::int64_t k = g * p.group; k < (g + 1) * p.group; k += 4) {
      const __m512i w = _mm512_loadu_si512(p.bytes + k * kPanel);
      for (int r = 0; r < kRows; ++r) {
        std::int32_t four;
        __builtin_memcpy(&four, a + r * p.a_stride + k, sizeof four);
        sum[r] = _mm512_dpbusd_epi32(sum[r], _mm512_set1_epi32(four), w);
      }
    }
  });
}
#endif

/// As above in 64 bits, the panel in two halves.
template <int kRows>
void add_wide_rows(const WindowRule& rule, const WindowProduct& p, std::int64_t first, double* sums) {
  const double* a = converted<double>(p, first, kRows, p.a_stride);
  const std::int16_t* ea = p.a_exponents + first * p.a_exponents_stride;
  const __m512i guard = _mm512_set1_epi64(rule.guard);
  __m512i value[kRows][2], reference[kRows];
  const auto half = [](__m512i v, int h) {
    return _mm512_cvtepi32_epi64(h == 0 ? _mm512_castsi512_si256(v) : _mm512_extracti32x8_epi32(v, 1));
  };
  for (int r = 0; r < kRows; ++r) {
    value[r][0] = value[r][1] = _mm512_setzero_si512();
    reference[r] = _mm512_set1_epi32(kNone);
  }
  std::int32_t begin = 0;
  for (std::int64_t i = 0; i < p.instructions; ++i) {
    const std::int32_t end = p.ends[i];
    __m512i top[kRows];
    for (int r = 0; r < kRows; ++r) top[r] = reference[r];
    raise(top, p, ea, begin, end);
    for (int r = 0; r < kRows; ++r) {
      const __m512i by = _mm512_sub_epi32(top[r], reference[r]);
      for (int h = 0; h < 2; ++h) value[r][h] = sticky_wide(value[r][h], half(by, h));
      reference[r] = top[r];
    }
    for (std::int32_t g = begin; g < end; ++g) {
      __m512d sum[kRows][2];
      for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_pd();
      for (std::int64_t k = g * p.group; k < (g + 1) * p.group; ++k)
        for (int h = 0; h < 2; ++h) {
          const __m512d w = _mm512_cvtps_pd(_mm256_loadu_ps(p.wide + k * kPanel + h * (kPanel / 2)));
          for (int r = 0; r < kRows; ++r)
            sum[r][h] = _mm512_fmadd_pd(_mm512_set1_pd(a[r * p.a_stride + k]), w, sum[r][h]);
        }
      const __m512i ew = exponents(p.w_exponents + g * kPanel);
      for (int r = 0; r < kRows; ++r) {
        const __m512i e = _mm512_add_epi32(ew, _mm512_set1_epi32(ea[r * p.a_exponents_stride + g])),
                      by = _mm512_sub_epi32(reference[r], e);
        const bool all = _mm512_cmpgt_epi32_mask(by, _mm512_set1_epi32(rule.guard)) == 0;
        for (int h = 0; h < 2; ++h) {
          const __m512i whole = _mm512_cvtpd_epi64(sum[r][h]), shift = half(by, h);
          value[r][h] = _mm512_add_epi64(value[r][h], all ? _mm512_sllv_epi64(whole, _mm512_sub_epi64(guard, shift))
                                                          : sticky_wide(_mm512_sllv_epi64(whole, guard), shift));
        }
      }
    }
    begin = end;
  }
  for (int r = 0; r < kRows; ++r) {
    alignas(64) std::int64_t values[kPanel];
    alignas(64) std::int32_t references[kPanel];
    for (int h = 0; h < 2; ++h) _mm512_store_si512(values + h * (kPanel / 2), value[r][h]);
    _mm512_store_si512(references, reference[r]);
    for (int lane = 0; lane < kPanel; ++lane)
      sums[r * kPanel + lane] = references[lane] > kHighestNumber
                                    ? __builtin_nan("")
                                    : scaled<std::int64_t>(values[lane], references[lane] - rule.guard - rule.fraction);
  }
}

}  // namespace

// One unit per instruction set includes this file. NOLINTNEXTLINE(misc-definitions-in-headers)
void add_windows(const WindowRule& rule, const WindowProduct& p, double* sums) {
  switch (rule.kind) {
    case WindowRule::Kind::kNarrow:
#ifdef __AVX512VNNI__
      if (p.bytes != nullptr && p.a_bytes != nullptr)
        return by_rows<8>(p.rows,
                          [&]<int kRows>(std::int64_t r) { add_byte_rows<kRows>(rule, p, r, sums + r * kPanel); });
#endif
      if (p.group > 1 && p.group % 2 != 0) return add_any(rule, p, sums);
      return by_rows<8>(p.rows,
                        [&]<int kRows>(std::int64_t r) { add_narrow_rows<kRows>(rule, p, r, sums + r * kPanel); });
    case WindowRule::Kind::kWide:
      return by_rows<4>(p.rows,
                        [&]<int kRows>(std::int64_t r) { add_wide_rows<kRows>(rule, p, r, sums + r * kPanel); });
    case WindowRule::Kind::kFloat:
      return add_any(rule, p, sums);
  }
}

}  // namespace DLLM_WINDOW_ISA
}  // namespace dllm::npu::accuracy
