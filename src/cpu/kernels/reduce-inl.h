#pragma once

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/math-inl.h"

// Reductions of logits: searches over float32, sums in float64.

namespace dllm::cpu::DLLM_ISA {
namespace {

/// First index from `begin` on whose value is at least `bound` (never a NaN), or n.
std::int64_t find_at_least(const float* z, std::int64_t begin, std::int64_t n, float bound) {
  const F32 bounds = set1(bound);
  std::int64_t i = begin;
  for (; i + 16 <= n; i += 16) {
    const int lane = first_at_least(load(z + i), bounds);
    if (lane < 16) return i + lane;
  }
  while (i < n && !(z[i] >= bound)) ++i;
  return i;
}

std::int64_t arg_max(const float* z, std::int64_t n) {
  // Four chains hide the latency of max. The second operand wins against NaN.
  F32 top[4];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) top[c] = set1(-__builtin_inff());
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64)
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) top[c] = max(load(z + i + 16 * c), top[c]);
  float best = reduce_max(max(max(top[0], top[1]), max(top[2], top[3])));
  for (; i < n; ++i) best = z[i] > best ? z[i] : best;
  const std::int64_t found = find_at_least(z, 0, n, best);
  return found < n ? found : -1;
}

/// e^d for -708 <= d <= 0 with a relative error below 3e-16: d = n ln 2 + r, e^r = 1 + r + r^2 q(r) with q interpolated
/// at the Chebyshev nodes of [-ln 2 / 2, ln 2 / 2] (degree 9, 2e-17).
inline F64 exp_normal(const F64& d) {
  const F64 magic = set1(0x1.8p52);  // as in exp() above
  const F64 shifted = fma(d, set1(0x1.71547652b82fep+0), magic);
  const F64 n = sub(shifted, magic);
  // The first part of ln 2 has 33 bits: n times it is exact.
  const F64 r = fma(n, set1(-0x1.473de6af278edp-34), fma(n, set1(-0x1.62e42fefp-1), d));
  // By Estrin's scheme: Horner's twelve steps are one chain, too long for out-of-order execution to hide.
  const F64 r2 = mul(r, r), r4 = mul(r2, r2);
  const F64 q01 = fma(set1(0.16666666666666669), r, set1(0.5));
  const F64 q23 = fma(set1(0.008333333333330063), r, set1(0.04166666666662416));
  const F64 q45 = fma(set1(0.00019841269863042963), r, set1(0.0013888888917199863));
  const F64 q67 = fma(set1(2.7557268476553695e-06), r, set1(2.4801521317484083e-05));
  const F64 q89 = fma(set1(2.5100377619606372e-08), r, set1(2.7620078203806394e-07));
  const F64 q = fma(fma(q89, r4, fma(q67, r2, q45)), r4, fma(q23, r2, q01));
  const F64 p = add(set1(1.0), fma(q, r2, r));
  return as_f64(add(as_i64(p), shift_left<52>(as_i64(shifted))));
}

struct ExpSums {
  F64 rest, weighted;

  void take(const F64& z, const F64& top, const F64& beta) {
    const F64 least = set1(kLeastExponent), d = mul(sub(z, top), beta);
    const F64 inside = select_greater(d, least, d, least);  // NaN too
    const F64 e = select_greater(d, least, exp_normal(inside), set1(0.0));
    rest = add(rest, e);
    weighted = fma(inside, e, weighted);
  }
};

void exp_sums(const float* z, std::int64_t n, float top, double beta, double* sums) {
  const F64 tops = set1(static_cast<double>(top)), betas = set1(beta);
  ExpSums s = {set1(0.0), set1(0.0)};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) s.take(load_wide(z + i), tops, betas);
  if (i < n) {
    float tail[8];
    for (int j = 0; j < 8; ++j) tail[j] = i + j < n ? z[i + j] : __builtin_nanf("");
    s.take(load_wide(tail), tops, betas);
  }
  sums[0] = reduce_add(s.rest);
  sums[1] = reduce_add(s.weighted);
}

/// Upper bounds of eight Gumbel draws: with e the binary exponent of 1 - u, g = -ln(-ln u) <= -ln(1 - u) <= -e ln 2.
/// Philox4x32-10 with one counter per lane (base/rng.h); numbers are the low halves of lanes, and the products read
/// nothing else.
inline F64 gumbel_bounds(const DrawArgs& args, std::int64_t i) {
  I64 c0, c1 = set1(std::int64_t{args.position}), c2 = set1(std::int64_t{args.step}),
          c3 = set1(std::int64_t{args.stream});
  alignas(64) static constexpr std::int64_t kLane[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  __builtin_memcpy(&c0, kLane, sizeof c0);
  c0 = add(c0, set1(static_cast<std::int64_t>(args.first_token) + i));
  auto k0 = static_cast<std::uint32_t>(args.seed), k1 = static_cast<std::uint32_t>(args.seed >> 32);
  const I64 m0 = set1(std::int64_t{0xD2511F53}), m1 = set1(std::int64_t{0xCD9E8D57});
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const I64 p0 = mul_low(m0, c0), p1 = mul_low(m1, c2);
    c0 = bit_xor(bit_xor(shift_right<32>(p1), c1), set1(std::int64_t{k0}));
    c2 = bit_xor(bit_xor(shift_right<32>(p0), c3), set1(std::int64_t{k1}));
    c1 = p1;
    c3 = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const I64 low = set1(std::int64_t{0xffffffff});
  const I64 mantissa = bit_or(shift_left<20>(bit_and(c0, low)), shift_right<12>(bit_and(c1, low)));
  // An integer below 2^52 in the mantissa of 2^52 is that integer plus 2^52. All steps up to 1 - u are exact.
  const I64 two52 = set1(std::int64_t{0x4330000000000000});
  const F64 u = mul(add(sub(as_f64(bit_or(mantissa, two52)), set1(0x1p52)), set1(0.5)), set1(0x1p-52));
  const I64 exponent = shift_right<52>(as_i64(sub(set1(1.0), u)));
  const F64 e = sub(as_f64(bit_or(exponent, two52)), set1(0x1p52 + 1023));
  return mul(e, set1(-0x1.62e42fefa39f0p-1));  // ln 2 rounded up
}

std::int64_t next_draw(const DrawArgs& args, std::int64_t begin, double bound) {
  const F64 bounds = set1(bound), inverse = set1(args.inverse_temperature);
  // Blocks of eight from `begin` on: the start of a block has no effect, because a lane depends only on its own token.
  for (std::int64_t i = begin; i < args.count; i += 8) {
    float tail[8];
    const float* z = args.logits + i;
    if (i + 8 > args.count) {
      for (int j = 0; j < 8; ++j) tail[j] = i + j < args.count ? z[j] : -__builtin_inff();
      z = tail;
    }
    const F64 scaled = mul(load_wide(z), inverse);
    // No draw exceeds 37, so whole blocks of unlikely tokens need no random numbers.
    if (first_not_less(add(scaled, set1(37.0)), bounds) == 8) continue;
    const int lane = first_not_less(add(scaled, gumbel_bounds(args, i)), bounds);
    if (lane < 8 && i + lane < args.count) return i + lane;
  }
  return args.count;
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
