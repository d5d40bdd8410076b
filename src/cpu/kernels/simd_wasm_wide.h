// The end of simd_wasm.h, which alone includes it. Lanes of 64 bits, and the codes of weights.
#pragma once

namespace dllm::cpu::DLLM_ISA {
namespace {

template <Nibbles kKind>
inline void decode_nibbles(const std::uint8_t* codes, const std::uint16_t* offsets, const std::int8_t* tables,
                           const std::uint8_t* minima, const std::uint8_t* fifths, std::uint8_t* low,
                           std::uint8_t* high) {
  const auto entries = [&](int group, int sixteen, v128_t codes16) {
    const std::int8_t* const table = tables + offsets[group];
    v128_t values = wasm_i8x16_swizzle(wasm_v128_load(table), codes16);
    if constexpr (kKind == Nibbles::kFives) {
      // Bit i of 16 as byte i.
      const v128_t bytes = wasm_i8x16_shuffle(wasm_i8x16_splat(static_cast<std::int8_t>(fifths[2 * sixteen])),
                                              wasm_i8x16_splat(static_cast<std::int8_t>(fifths[2 * sixteen + 1])), 0, 1,
                                              2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
      const v128_t bit = wasm_u8x16_const(1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128);
      values = wasm_v128_bitselect(wasm_i8x16_swizzle(wasm_v128_load(table + 16), codes16), values,
                                   wasm_i8x16_eq(wasm_v128_and(bytes, bit), bit));
    }
    if constexpr (kKind == Nibbles::kPlain) return values;
    return wasm_i8x16_sub(values, wasm_i8x16_splat(static_cast<std::int8_t>(minima[group])));
  };
  for (int i = 0; i < 4; ++i) {
    const v128_t both = wasm_v128_load(codes + 16 * i);
    wasm_v128_store(low + 16 * i, entries(i / 2, i, wasm_v128_and(both, wasm_i8x16_const_splat(15))));
    wasm_v128_store(high + 16 * i, entries(2 + i / 2, 4 + i, wasm_u8x16_shr(both, 4)));
  }
}

// Eight lanes of 64 bits, for reductions in double precision and for random numbers.
struct F64 {
  v128_t v[4];
};
struct I64 {
  v128_t v[4];
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
  return map_wide([=](int) { return wasm_f64x2_splat(x); });
}
inline I64 set1(std::int64_t x) {
  return map_long([=](int) { return wasm_i64x2_splat(x); });
}
inline F64 load_wide(const float* p) {
  return map_wide([=](int i) { return wasm_f64x2_promote_low_f32x4(wasm_v128_load64_zero(p + 2 * i)); });
}
inline F64 add(const F64& a, const F64& b) {
  return map_wide([&](int i) { return wasm_f64x2_add(a.v[i], b.v[i]); });
}
inline F64 sub(const F64& a, const F64& b) {
  return map_wide([&](int i) { return wasm_f64x2_sub(a.v[i], b.v[i]); });
}
inline F64 mul(const F64& a, const F64& b) {
  return map_wide([&](int i) { return wasm_f64x2_mul(a.v[i], b.v[i]); });
}
#ifdef DLLM_RELAXED_SIMD
inline F64 fma(const F64& a, const F64& b, const F64& c) {
  return map_wide([&](int i) { return wasm_f64x2_relaxed_madd(a.v[i], b.v[i], c.v[i]); });
}
#else
inline F64 fma(const F64& a, const F64& b, const F64& c) {
  double x[8], y[8], z[8];
  for (int i = 0; i < 4; ++i) {
    wasm_v128_store(x + 2 * i, a.v[i]);
    wasm_v128_store(y + 2 * i, b.v[i]);
    wasm_v128_store(z + 2 * i, c.v[i]);
  }
  for (int i = 0; i < 8; ++i) z[i] = kFmaF64(x[i], y[i], z[i]);
  return map_wide([&](int i) { return wasm_v128_load(z + 2 * i); });
}
#endif
inline F64 select_greater(const F64& a, const F64& b, const F64& x, const F64& y) {
  return map_wide([&](int i) { return wasm_v128_bitselect(x.v[i], y.v[i], wasm_f64x2_gt(a.v[i], b.v[i])); });
}
inline F64 as_f64(const I64& a) { return {{a.v[0], a.v[1], a.v[2], a.v[3]}}; }
inline I64 as_i64(const F64& a) { return {{a.v[0], a.v[1], a.v[2], a.v[3]}}; }
inline I64 add(const I64& a, const I64& b) {
  return map_long([&](int i) { return wasm_i64x2_add(a.v[i], b.v[i]); });
}
inline I64 bit_and(const I64& a, const I64& b) {
  return map_long([&](int i) { return wasm_v128_and(a.v[i], b.v[i]); });
}
inline I64 bit_or(const I64& a, const I64& b) {
  return map_long([&](int i) { return wasm_v128_or(a.v[i], b.v[i]); });
}
inline I64 bit_xor(const I64& a, const I64& b) {
  return map_long([&](int i) { return wasm_v128_xor(a.v[i], b.v[i]); });
}
template <int kBits>
inline I64 shift_left(const I64& a) {
  return map_long([&](int i) { return wasm_i64x2_shl(a.v[i], kBits); });
}
template <int kBits>
inline I64 shift_right(const I64& a) {
  return map_long([&](int i) { return wasm_u64x2_shr(a.v[i], kBits); });
}
inline I64 mul_low(const I64& a, const I64& b) {
  const v128_t low = wasm_i64x2_const_splat(0xffffffff);
  return map_long([&](int i) { return wasm_i64x2_mul(wasm_v128_and(a.v[i], low), wasm_v128_and(b.v[i], low)); });
}
inline double reduce_add(const F64& a) {
  const v128_t two = wasm_f64x2_add(wasm_f64x2_add(a.v[0], a.v[2]), wasm_f64x2_add(a.v[1], a.v[3]));
  return wasm_f64x2_extract_lane(two, 0) + wasm_f64x2_extract_lane(two, 1);
}
inline int lane_index(unsigned mask, int lanes) { return mask == 0 ? lanes : __builtin_ctz(mask); }
inline int first_at_least(const F32& a, const F32& b) {
  unsigned mask = 0;
  for (int i = 0; i < 4; ++i) mask |= wasm_i32x4_bitmask(wasm_f32x4_ge(a.v[i], b.v[i])) << (4 * i);
  return lane_index(mask, 16);
}
inline int first_not_less(const F64& a, const F64& b) {
  unsigned mask = 0;
  for (int i = 0; i < 4; ++i) mask |= wasm_i64x2_bitmask(wasm_v128_not(wasm_f64x2_lt(a.v[i], b.v[i]))) << (2 * i);
  return lane_index(mask, 8);
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
