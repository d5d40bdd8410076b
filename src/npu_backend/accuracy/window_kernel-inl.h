#pragma once

// The integer windows with the compiler's vector types. Included once per instruction set by a source that defines
// DLLM_WINDOW_ISA and is compiled with that set's flags; includes no functions that other sources share. All values are
// integers, exact floats, or one float operation per element, so all sets give the same bits.

#include "npu_backend/accuracy/window_kernel.h"

namespace dllm::npu::accuracy {
namespace DLLM_WINDOW_ISA {
namespace {

// Vectors are passed by reference only: their calling convention depends on the instruction set.
template <class T>
struct PanelVector {
  using type [[gnu::vector_size(kPanel * sizeof(T))]] = T;
};
template <class T>
using Panel = typename PanelVector<T>::type;

template <class Int>
struct UnsignedOf;
template <>
struct UnsignedOf<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<std::int64_t> {
  using type = std::uint64_t;
};

template <class T>
[[gnu::always_inline]] inline void load(Panel<T>& v, const T* from) {
  __builtin_memcpy(&v, from, sizeof v);
}

/// Elements of the matrix, in the type of their sums.
template <class Sum>
[[gnu::always_inline]] inline void load_terms(Panel<Sum>& v, const std::int16_t* from) {
  Panel<std::int16_t> codes;
  load(codes, from);
  v = __builtin_convertvector(__builtin_convertvector(codes, Panel<std::int32_t>), Panel<Sum>);
}
template <class Sum>
[[gnu::always_inline]] inline void load_terms(Panel<Sum>& v, const float* from) {
  Panel<float> values;
  load(values, from);
  v = __builtin_convertvector(values, Panel<Sum>);
}

/// v / 2^by toward minus infinity, with the last bit set if anything was lost. `by` is limited to the width of a
/// window; if negative, it belongs to a group of zeros.
template <class Int>
[[gnu::always_inline]] inline void shift_sticky(Panel<Int>& v, const Panel<std::int32_t>& by) {
  using Unsigned = typename UnsignedOf<Int>::type;
  constexpr std::int32_t kMost = 8 * sizeof(Int) - 1;
  const Panel<std::int32_t> most = Panel<std::int32_t>{} + kMost, least = {};
  const Panel<std::int32_t> positive = by < least ? least : by;
  const Panel<std::int32_t> limited = positive > most ? most : positive;
  const Panel<Int> shift = __builtin_convertvector(limited, Panel<Int>);
  const Panel<Int> kept = v >> shift;
  const Panel<Int> back = (Panel<Int>)((Panel<Unsigned>)kept << (Panel<Unsigned>)shift);
  v = kept | ((back != v) & 1);
}

/// value * 2^exponent with at most 53 bits: longer values are rounded to odd.
template <class Int>
[[gnu::always_inline]] inline double scaled(Int value, int exponent) {
  if (value == 0) return 0.0;
  std::int64_t wide = value;
  if (sizeof(Int) > 4) {
    const int excess = 11 - __builtin_clzll(static_cast<unsigned long long>(wide < 0 ? ~wide : wide) | 1);
    if (excess > 0) {
      const std::int64_t kept = wide >> excess;
      wide = (kept << excess) == wide ? kept : kept | 1;
      exponent += excess;
    }
  }
  const std::uint64_t power = static_cast<std::uint64_t>(exponent + 1023) << 52;
  double factor;
  __builtin_memcpy(&factor, &power, sizeof factor);
  return static_cast<double>(wide) * factor;
}

template <class Int, class Sum, class Term, int kRows>
[[gnu::always_inline]] inline void add_rows(const WindowRule& rule, const WindowProduct& p, const Term* terms,
                                            std::int64_t first, double* sums) {
  constexpr std::int32_t kNothing = -100000;
  Panel<Int> value[kRows] = {};
  Panel<std::int32_t> reference[kRows];
  for (int r = 0; r < kRows; ++r) reference[r] = Panel<std::int32_t>{} + kNothing;
  const float* a = p.a + first * p.a_stride;
  const std::int16_t* ea = p.a_exponents + first * p.a_exponents_stride;
  std::int32_t begin = 0;
  for (std::int64_t i = 0; i < p.instructions; ++i) {
    const std::int32_t end = p.ends[i];
    Panel<std::int32_t> top[kRows];
    for (int r = 0; r < kRows; ++r) top[r] = reference[r];
    for (std::int32_t g = begin; g < end; ++g) {
      Panel<std::int16_t> codes;
      load(codes, p.w_exponents + g * kPanel);
      const Panel<std::int32_t> ew = __builtin_convertvector(codes, Panel<std::int32_t>);
      for (int r = 0; r < kRows; ++r) {
        const Panel<std::int32_t> e = ew + ea[r * p.a_exponents_stride + g];
        // A group in which one side has only zeros is skipped.
        const Panel<std::int32_t> number = e > kLowestNumber ? e : Panel<std::int32_t>{} + kNothing;
        top[r] = number > top[r] ? number : top[r];
      }
    }
    for (int r = 0; r < kRows; ++r) {
      shift_sticky<Int>(value[r], top[r] - reference[r]);
      reference[r] = top[r];
    }
    for (std::int32_t g = begin; g < end; ++g) {
      bool any = false;
      for (int r = 0; r < kRows; ++r) any = any || ea[r * p.a_exponents_stride + g] > kLowestNumber;
      if (!any) continue;
      Panel<Sum> sum[kRows] = {};
      for (std::int64_t k = g * p.group; k < (g + 1) * p.group; ++k) {
        Panel<Sum> w;
        load_terms<Sum>(w, terms + k * kPanel);
        for (int r = 0; r < kRows; ++r) sum[r] += static_cast<Sum>(a[r * p.a_stride + k]) * w;
      }
      Panel<std::int16_t> codes;
      load(codes, p.w_exponents + g * kPanel);
      const Panel<std::int32_t> ew = __builtin_convertvector(codes, Panel<std::int32_t>);
      for (int r = 0; r < kRows; ++r) {
        Panel<Int> added = __builtin_convertvector(sum[r], Panel<Int>) << rule.guard;
        shift_sticky<Int>(added, reference[r] - (ew + ea[r * p.a_exponents_stride + g]));
        value[r] += added;
      }
    }
    begin = end;
  }
  for (int r = 0; r < kRows; ++r)
    for (int lane = 0; lane < kPanel; ++lane)
      sums[r * kPanel + lane] = reference[r][lane] > kHighestNumber
                                    ? __builtin_nan("")
                                    : scaled<Int>(value[r][lane], reference[r][lane] - rule.guard - rule.fraction);
}

template <int kRows>
[[gnu::always_inline]] inline void add_float_rows(const WindowProduct& p, std::int64_t first, double* sums) {
  Panel<float> sum[kRows] = {};
  const float* a = p.a + first * p.a_stride;
  const std::int64_t terms = p.instructions == 0 ? 0 : p.ends[p.instructions - 1] * p.group;
  for (std::int64_t k = 0; k < terms; ++k) {
    Panel<float> w;
    load(w, p.wide + k * kPanel);
    for (int r = 0; r < kRows; ++r) sum[r] += a[r * p.a_stride + k] * w;
  }
  for (int r = 0; r < kRows; ++r)
    for (int lane = 0; lane < kPanel; ++lane) sums[r * kPanel + lane] = static_cast<double>(sum[r][lane]);
}

/// Rows in groups of `kMost`, then of half as many.
template <int kMost, class Run>
[[gnu::always_inline]] inline void by_rows(std::int64_t rows, const Run& run, std::int64_t first = 0) {
  for (; first + kMost <= rows; first += kMost) run.template operator()<kMost>(first);
  if constexpr (kMost > 1) by_rows<kMost / 2>(rows, run, first);
}

[[gnu::always_inline]] inline void add_any(const WindowRule& rule, const WindowProduct& p, double* sums) {
  switch (rule.kind) {
    case WindowRule::Kind::kNarrow:
      return by_rows<4>(p.rows, [&]<int kRows>(std::int64_t r) {
        add_rows<std::int32_t, float, std::int16_t, kRows>(rule, p, p.narrow, r, sums + r * kPanel);
      });
    case WindowRule::Kind::kWide:
      return by_rows<2>(p.rows, [&]<int kRows>(std::int64_t r) {
        add_rows<std::int64_t, double, float, kRows>(rule, p, p.wide, r, sums + r * kPanel);
      });
    case WindowRule::Kind::kFloat:
      return by_rows<8>(p.rows, [&]<int kRows>(std::int64_t r) { add_float_rows<kRows>(p, r, sums + r * kPanel); });
  }
}

[[gnu::always_inline]] inline void widen_panel(const std::uint16_t* from, bool bf16, float* to) {
  using Bits = Panel<std::uint32_t>;
  Panel<std::uint16_t> codes;
  load(codes, from);
  const Bits h = __builtin_convertvector(codes, Bits);
  if (bf16) {
    const Bits bits = h << 16;
    __builtin_memcpy(to, &bits, sizeof bits);
    return;
  }
  // As f16_to_f32(): 2^112 rebiases the exponent, and normalises subnormals; infinity and NaN keep their payload.
  const Bits magnitude = (h & 0x7fffu) << 13;
  const Panel<float> rebased = (Panel<float>)magnitude * 0x1.0p112f;
  const Bits special = magnitude | 0x7f800000u;
  Bits bits = magnitude >= 0x0f800000u ? special : (Bits)rebased;
  bits |= (h & 0x8000u) << 16;
  __builtin_memcpy(to, &bits, sizeof bits);
}

}  // namespace

// One unit per instruction set includes this file. NOLINTNEXTLINE(misc-definitions-in-headers)
void widen(const std::uint16_t* from, bool bf16, std::int64_t terms, float* to) {
  for (std::int64_t k = 0; k < terms; ++k) widen_panel(from + k * kPanel, bf16, to + k * kPanel);
}

#ifndef DLLM_WINDOW_OWN_INTEGERS
// One unit per instruction set includes this file. NOLINTNEXTLINE(misc-definitions-in-headers)
void add_windows(const WindowRule& rule, const WindowProduct& p, double* sums) { add_any(rule, p, sums); }
#endif

}  // namespace DLLM_WINDOW_ISA
}  // namespace dllm::npu::accuracy
