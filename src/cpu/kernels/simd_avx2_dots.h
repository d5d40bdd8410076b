// The end of simd_avx2.h, which alone includes it.
#pragma once

#include "cpu/kernels/packed.h"

namespace dllm::cpu::DLLM_ISA {
namespace {

// Codes and their products for panel tiles (panels-inl.h).
inline void store_bytes(std::uint8_t* p, U8 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), a.hi);
}
inline U8 and_bytes(U8 a, std::uint8_t bits) {
  const __m256i mask = _mm256_set1_epi8(static_cast<char>(bits));
  return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
inline U8 or_bytes(U8 a, U8 b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
/// Left, or right if negative, within words of 16 bits: bits of the neighbouring byte are shifted in.
template <int kLeft>
inline U8 shift_bits(U8 a) {
  if constexpr (kLeft < 0) return {_mm256_srli_epi16(a.lo, -kLeft), _mm256_srli_epi16(a.hi, -kLeft)};
  return {_mm256_slli_epi16(a.lo, kLeft), _mm256_slli_epi16(a.hi, kLeft)};
}
/// table[index], of 16 bytes.
inline U8 look_up(const std::uint8_t* table, U8 index) {
  const __m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(values, index.lo), _mm256_shuffle_epi8(values, index.hi)};
}

/// Bytes of ones where one of 32 bits is set.
inline __m256i spread_bits(const std::uint8_t* bits) {
  std::int32_t word;
  __builtin_memcpy(&word, bits, sizeof word);
  const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(static_cast<std::int64_t>(0x8040201008040201u));
  return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(word), byte), bit), bit);
}
template <Nibbles kKind>
inline void decode_nibbles(const std::uint8_t* codes, const std::uint16_t* offsets, const std::int8_t* tables,
                           const std::uint8_t* minima, const std::uint8_t* fifths, std::uint8_t* low,
                           std::uint8_t* high) {
  const U8 both = load_bytes(codes);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(tables);
  const U8 below = and_bytes(both, 15), above = and_bytes(shift_bits<-4>(both), 15);
  const auto store = [&](std::uint8_t* to, int group, U8 index) {
    U8 values{look_up(bytes + offsets[group], index).lo, look_up(bytes + offsets[group + 1], index).hi};
    if constexpr (kKind == Nibbles::kFives) {
      const __m256i lo = look_up(bytes + offsets[group] + 16, index).lo,
                    hi = look_up(bytes + offsets[group + 1] + 16, index).hi;
      values = {_mm256_blendv_epi8(values.lo, lo, spread_bits(fifths + 4 * group)),
                _mm256_blendv_epi8(values.hi, hi, spread_bits(fifths + 4 * group + 4))};
    }
    if constexpr (kKind != Nibbles::kPlain)
      values = {_mm256_sub_epi8(values.lo, _mm256_set1_epi8(static_cast<char>(minima[group]))),
                _mm256_sub_epi8(values.hi, _mm256_set1_epi8(static_cast<char>(minima[group + 1])))};
    store_bytes(to, values);
  };
  store(low, 0, below);
  store(high, 2, above);
}

/// The next 16 k of a row: not loaded, since broadcasts come from memory.
struct Quads {
  const std::int8_t* at;
};
inline Quads load_quads(const std::int8_t* p) { return {p}; }
template <int kLane>
inline __m256i quad(Quads x) {
  std::int32_t four;
  __builtin_memcpy(&four, x.at + 4 * kLane, 4);
  return _mm256_set1_epi32(four);
}

/// Keeps additions where they are written: GCC moves those of a chain to its end, which keeps all summands alive.
inline __m256i settled(__m256i sum) {
  asm("" : "+x"(sum));
  return sum;
}

/// The sum of a group's products: begin, a step per quad (or two), end.
template <int kMost>
struct Dots {
  static constexpr bool kSigned = false;
#ifdef DLLM_AVX_VNNI
  static constexpr int kRows = 6;
  static constexpr bool kTwoSteps = false;
  using Sum = I32;
  using Ready = U8;
  static Ready ready(U8 w) { return w; }
  static Sum begin(std::int32_t correction) { return set1(correction); }
  template <int kLane>
  static Sum step(Sum sum, Ready w, Quads x) {
    const __m256i a = quad<kLane>(x);
    return {_mm256_dpbusd_avx_epi32(sum.lo, w.lo, a), _mm256_dpbusd_avx_epi32(sum.hi, w.hi, a)};
  }
  static I32 end(Sum sum, std::int32_t) { return sum; }
#else
  static_assert(kMost <= 63);  // two quads fit 16 bits
  static constexpr int kRows = 4;
  static constexpr bool kTwoSteps = true;
  using Sum = I32;
  using Ready = U8;
  static Ready ready(U8 w) { return w; }
  static Sum begin(std::int32_t correction) { return set1(correction); }
  template <int kLane>
  static Sum two_steps(Sum sum, Ready v, Ready w, Quads x) {
    const __m256i a = quad<kLane>(x), b = quad<kLane + 1>(x), ones = _mm256_set1_epi16(1);
    const __m256i lo = _mm256_add_epi16(_mm256_maddubs_epi16(v.lo, a), _mm256_maddubs_epi16(w.lo, b));
    const __m256i hi = _mm256_add_epi16(_mm256_maddubs_epi16(v.hi, a), _mm256_maddubs_epi16(w.hi, b));
    return {settled(_mm256_add_epi32(sum.lo, _mm256_madd_epi16(lo, ones))),
            settled(_mm256_add_epi32(sum.hi, _mm256_madd_epi16(hi, ones)))};
  }
  static I32 end(Sum sum, std::int32_t) { return sum; }
#endif
};

#ifndef DLLM_AVX_VNNI
/// Eight quads fit 16 bits.
template <>
struct Dots<15> {
  static constexpr bool kSigned = false;
  static constexpr int kRows = 5;
  static constexpr std::int64_t kDecodesFrom = 6;
  static constexpr bool kTwoSteps = false;
  using Sum = U8;  ///< of 16-bit lanes
  using Ready = U8;
  static Ready ready(U8 w) { return w; }
  static Sum begin(std::int32_t) { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  template <int kLane>
  static Sum step(Sum sum, Ready w, Quads x) {
    const __m256i a = quad<kLane>(x);
    return {settled(_mm256_add_epi16(sum.lo, _mm256_maddubs_epi16(w.lo, a))),
            settled(_mm256_add_epi16(sum.hi, _mm256_maddubs_epi16(w.hi, a)))};
  }
  static I32 end(Sum sum, std::int32_t correction) {
    const __m256i ones = _mm256_set1_epi16(1);
    return add(I32{_mm256_madd_epi16(sum.lo, ones), _mm256_madd_epi16(sum.hi, ones)}, set1(correction));
  }
};

/// sum plus the products of bytes and of signed ones, of which a pair fits 16 bits.
inline __m256i add_quad(__m256i sum, __m256i bytes, __m256i x) {
  return settled(_mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, x), _mm256_set1_epi16(1))));
}

/// One quad fits 16 bits.
template <>
struct Dots<127> : Dots<63> {
  static constexpr int kRows = 5;
  static constexpr std::int64_t kDecodesFrom = 2;  ///< three bits and a table take 16 instructions a quad
  static constexpr bool kTwoSteps = false;
  template <int kLane>
  static Sum step(Sum sum, Ready w, Quads x) {
    const __m256i a = quad<kLane>(x);
    return {add_quad(sum.lo, w.lo, a), add_quad(sum.hi, w.hi, a)};
  }
};

/// Bytes: |w| with w = u - 128 is at most 128, so that a pair of products fits 16 bits; x takes the sign of w. The zero
/// point needs no correction then.
template <>
struct Dots<255> {
  static constexpr bool kSigned = false;
  static constexpr int kRows = 4;
  static constexpr bool kTwoSteps = false;
  using Sum = I32;
  struct Ready {
    U8 magnitude, value;
  };
  static Ready ready(U8 u) {
    const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
    const U8 value = {_mm256_xor_si256(u.lo, flip), _mm256_xor_si256(u.hi, flip)};
    return {{_mm256_abs_epi8(value.lo), _mm256_abs_epi8(value.hi)}, value};
  }
  static Sum begin(std::int32_t) { return set1(std::int32_t{0}); }
  template <int kLane>
  static Sum step(Sum sum, const Ready& w, Quads x) {
    const __m256i a = quad<kLane>(x);
    return {add_quad(sum.lo, w.magnitude.lo, _mm256_sign_epi8(a, w.value.lo)),
            add_quad(sum.hi, w.magnitude.hi, _mm256_sign_epi8(a, w.value.hi))};
  }
  static I32 end(Sum sum, std::int32_t) { return sum; }
};
/// Bytes that were taken apart once for several tiles, into magnitudes and masks of those below zero. x ^ mask is -x -
/// 1 there, so that sums begin with the magnitudes of negative weights. The exclusive or runs on every port, whereas
/// VPSIGNB waits for the two of the products (Intel: 2 instead of 3 instructions there).
struct SplitDots : Dots<255> {
  struct Ready {
    U8 magnitude, mask;
  };
  static Ready ready(U8 magnitude, U8 mask) { return {magnitude, mask}; }
  template <int kLane>
  static Sum step(Sum sum, const Ready& w, Quads x) {
    const __m256i a = quad<kLane>(x);
    return {add_quad(sum.lo, w.magnitude.lo, _mm256_xor_si256(a, w.mask.lo)),
            add_quad(sum.hi, w.magnitude.hi, _mm256_xor_si256(a, w.mask.hi))};
  }
  /// Magnitudes of negative values, four a lane, of which a few fit 16 bits.
  static I32 take_apart(U8 value, std::uint8_t* magnitudes, std::uint8_t* masks) {
    const __m256i zero = _mm256_setzero_si256(), ones = _mm256_set1_epi16(1), bytes = _mm256_set1_epi8(1);
    const U8 magnitude = {_mm256_abs_epi8(value.lo), _mm256_abs_epi8(value.hi)};
    const U8 mask = {_mm256_cmpgt_epi8(zero, value.lo), _mm256_cmpgt_epi8(zero, value.hi)};
    store_bytes(magnitudes, magnitude);
    store_bytes(masks, mask);
    const auto sum = [&](__m256i a, __m256i m) {
      return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_and_si256(a, m), bytes), ones);
    };
    return {sum(magnitude.lo, mask.lo), sum(magnitude.hi, mask.hi)};
  }
};
/// Bytes that have their sign.
template <>
struct Dots<kSignedBytes> : Dots<255> {
  using Split = SplitDots;
  static constexpr bool kSigned = true;
  static Ready ready(U8 value) { return {{_mm256_abs_epi8(value.lo), _mm256_abs_epi8(value.hi)}, value}; }
};
#endif

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
