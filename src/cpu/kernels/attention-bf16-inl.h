#pragma once

#include "cpu/kernels/attention-inl.h"
#include "cpu/kernels/bf16-inl.h"
#include "cpu/kernels/kernel_set.h"

// Attention in the arithmetic `bf16` (docs/design/arithmetic.md): what its forms share, and the form of multiply-adds,
// which in the scalar set defines what the others must compute. Lanes, tiles of keys and the online softmax are those
// of attention-inl.h; the two products are sums in steps of 32, as TDPBF16PS computes them.
//
// A chain begins at +0 and never becomes -0 (its products are exact and not subnormal), so that products with a zero,
// and steps of them, change nothing: keys that a query does not see, and the padding of a step, have weights of zero.
// A value that is not finite would be an exception; it is kept out of the products (spoil()).

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr float kLeastOperand = 0x1p-55f, kMostOperand = 0x1p54f;
constexpr std::int32_t kLeastOperandBits = 0x24000000;

/// What products multiply: x rounded to BF16 and limited. NaN if that is not finite.
inline F32 operand(F32 x) {
  const F32 rounded = as_f32(bf16_of(x));
  const F32 limited = min(set1(kMostOperand), max(set1(-kMostOperand), rounded));
  const F32 shown = add(limited, sub(rounded, rounded));
  const I32 magnitude = bit_and(as_i32(shown), set1(std::int32_t{0x7fffffff}));
  return select_greater(magnitude, set1(kLeastOperandBits - 1), shown, set1(0.f));
}

/// Dimensions in whole steps.
inline std::int64_t padded_dim(const AttentionArgs& args) {
  return (args.head_dim + kBf16Step - 1) / kBf16Step * kBf16Step;
}

/// A row of the cache as floats, zero-padded to whole steps.
inline void widen_padded(const AttentionArgs& args, const std::byte* row, float* out) {
  widen_rows(args, 0, 1, out, [row](int) { return row; });
  if ((args.head_dim + 15) / 16 * 16 < padded_dim(args)) store(out + padded_dim(args) - 16, set1(0.f));
}

/// Operands of a row of the cache as floats, zero-padded to whole steps; their zeros and NaN are added to `shown`.
inline F32 operand_row(const AttentionArgs& args, const std::byte* row, float* out, F32 shown) {
  widen_padded(args, row, out);
  for (std::int64_t d = 0; d < padded_dim(args); d += 16) {
    const F32 x = operand(load(out + d));
    shown = fma(x, set1(0.f), shown);
    store(out + d, x);
  }
  return shown;
}

inline bool has_nan(F32 x) {
  const float sum = reduce_add(x);
  return !(sum == sum);
}

/// What operand() does, to words that are rounded already; `missing` instead of what is not finite. Whether there was.
inline bool limit_words(float* pairs, std::int64_t count, std::uint16_t missing) {
  bool any = false;
  for (std::int64_t i = 0; i < 2 * count; ++i) {
    auto* const at = reinterpret_cast<std::byte*>(pairs) + 2 * i;
    std::uint16_t word;
    __builtin_memcpy(&word, at, 2);
    const unsigned sign = word & 0x8000u, magnitude = word & 0x7fffu;
    if (magnitude >= 0x7f80)
      any = true, word = missing;
    else if (magnitude > 0x5a80)
      word = static_cast<std::uint16_t>(sign | 0x5a80u);
    else if (magnitude < 0x2400)
      word = 0;
    __builtin_memcpy(at, &word, 2);
  }
  return any;
}

/// Calls body(slot, dim) for each value of the tile that is not finite.
template <class Body>
void for_each_missing(const AttentionArgs& args, const KeyTile& tile, float* row, const Body& body) {
  for (int j = 0; j < tile.count; ++j) {
    if (!has_nan(operand_row(args, value_row(args, tile, j), row, set1(0.f)))) continue;
    for (std::int64_t d = 0; d < args.head_dim; ++d)
      if (!(row[d] == row[d])) body(j, d);
  }
}

/// 2^x, rounded to BF16, for x <= 0: in [2^-55, 1], or NaN.
inline F32 rounded_weight(F32 x) {
  const I32 bits = as_i32(exp2_weight<-55>(x)), last = bit_and(shift_right<16>(bits), set1(std::int32_t{1}));
  // No NaN here carries into its sign.
  return as_f32(bit_and(add(add(bits, set1(std::int32_t{0x7fff})), last), set1(std::int32_t{-0x10000})));
}

/// As weigh(), with weights rounded to BF16, which are also what is summed. put(j, weights) takes four at a time, zeros
/// beyond the last.
template <int kVectors, bool kMasked, class Put>
inline F32 weigh_rounded(const AttentionGroup& group, const KeyTile& tile, int v, const Put& put) {
  const I32 limit = as_i32(load(group.limit + 16 * v));
  const F32 before = load(group.top + 16 * v);
  const float* scores = tile.scores + 16 * v;
  const F32 top = top_score<kVectors, kMasked>(group, tile, v);
  F32 sum[4];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) sum[c] = set1(0.f);
  const auto weight_of = [&](int j) {
    const F32 weight = rounded_weight(sub(load(scores + j * kVectors * 16), top));
    return kMasked ? select_greater(limit, set1(tile.position[j]), weight, set1(0.f)) : weight;
  };
  int j = 0;
  for (; j + 4 <= tile.count; j += 4) {
    F32 weights[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      weights[c] = weight_of(j + c);
      sum[c] = add(sum[c], weights[c]);
    }
    put(j, weights);
  }
  if (j < tile.count) {
    F32 weights[4];
    for (int c = 0; c < 4; ++c) {
      weights[c] = j + c < tile.count ? weight_of(j + c) : set1(0.f);
      sum[c] = add(sum[c], weights[c]);
    }
    put(j, weights);
    j += 4;
  }
  const F32 zeros[4] = {set1(0.f), set1(0.f), set1(0.f), set1(0.f)};
  for (; j % kBf16Step != 0; j += 4) put(j, zeros);
  const F32 factor = exp2_weight(sub(before, top));
  store(group.top + 16 * v, top);
  store(group.sum + 16 * v, fma(load(group.sum + 16 * v), factor, add(add(sum[0], sum[2]), add(sum[1], sum[3]))));
  return factor;
}

/// Outputs of queries that see a value which is not finite are not numbers. The products had zeros there.
template <class Form>
void spoil(const AttentionArgs& args, const KeyTile& tile, float* row, std::int64_t stride, AttentionGroups& groups) {
  for_each_missing(args, tile, row, [&](int j, std::int64_t d) {
    for (const AttentionGroup& group : groups)
      for (int i = 0; i < group.queries; ++i) {
        const std::int32_t limit = args.limits[(group.first + i) / args.group];
        if (limit > tile.position[j]) Form::output(group, stride, i, d) = __builtin_nanf("");
      }
  });
}

template <class Form, int kStride>
void attend_group_bf16(const Form& form, const AttentionGroup& group, const KeyTile& tile, const Ahead& ahead,
                       std::int64_t head_dim, std::int64_t stride) {
  if (tile.position[0] >= group.most) return;
  const bool masked = tile.position[tile.count - 1] >= group.least;
  if (group.queries > 16) {
    if (masked) return form.template attend<Form::kVectors, kStride, true>(group, tile, ahead, head_dim, stride);
    return form.template attend<Form::kVectors, kStride, false>(group, tile, ahead, head_dim, stride);
  }
  if (masked) return form.template attend<1, kStride, true>(group, tile, ahead, head_dim, stride);
  form.template attend<1, kStride, false>(group, tile, ahead, head_dim, stride);
}

/// A Form has the operands of a tile of keys, and the products of one group of queries with them.
template <class Form, int kStride>
void attend_bf16(const AttentionArgs& args) {
  AttentionScratch scratch(args, kStride, Form::kVectors * 16);
  const std::int64_t stride = scratch.stride;
  KeyTile& tile = scratch.tile;
  fetch_first(args);
  AttentionGroups groups(args, scratch);
  for (const AttentionGroup& group : groups) Form::arrange_queries(args, stride, group);
  const Form form(scratch);
  for_each_tile(args, groups.seen, tile, [&](Ahead ahead) {
    form.arrange_keys(args, tile, stride);
    const bool missing = form.arrange_values(args, tile, stride);
    for (const AttentionGroup& group : groups) {
      attend_group_bf16<Form, kStride>(form, group, tile, ahead, args.head_dim, stride);
      ahead.bytes = 0;
    }
    if (missing) spoil<Form>(args, tile, scratch.k, stride, groups);
  });
  for (const AttentionGroup& group : groups) Form::finish(args, stride, group);
}

/// Outputs as planes [vector][stride][16], with +0 for -0: of a sum that underflowed, the sign would depend on the
/// tiles that follow.
inline void finish_planes(const AttentionArgs& args, std::int64_t stride, const AttentionGroup& group) {
  for (int v = 0; 16 * v < group.queries; ++v)
    for (std::int64_t d = 0; d < args.head_dim; ++d) {
      float* const out = group.out + (v * stride + d) * 16;
      store(out, add(load(out), set1(0.f)));
    }
  end_group(args, stride, group);
}

/// Rounds queries and zero-pads them to whole steps.
inline void round_queries(const AttentionArgs& args, std::int64_t stride, const AttentionGroup& group) {
  const std::int64_t padded = (args.head_dim + kBf16Step - 1) / kBf16Step * kBf16Step;
  for (int v = 0; 16 * v < group.queries; ++v)
    for (std::int64_t d = 0; d < padded; ++d) {
      float* const q = group.q + (v * stride + d) * 16;
      store(q, d < args.head_dim ? operand(load(q)) : set1(0.f));
    }
}

/// Operands as floats.
struct ChainForm {
  static constexpr int kVectors = kAttentionVectors;
  static constexpr int kRows = 2 * kVectors;  ///< keys or dimensions of a register tile: three accumulators each

  explicit ChainForm(const AttentionScratch& scratch) : k(scratch.k), v(scratch.v) {}

  static float& output(const AttentionGroup& group, std::int64_t stride, int query, std::int64_t d) {
    return group.out[(query / 16 * stride + d) * 16 + query % 16];
  }
  static void arrange_queries(const AttentionArgs& args, std::int64_t stride, const AttentionGroup& group) {
    round_queries(args, stride, group);
  }
  void arrange_keys(const AttentionArgs& args, const KeyTile& tile, std::int64_t stride) const {
    for (int j = 0; j < tile.count; ++j) operand_row(args, key_row(args, tile, j), k + j * stride, set1(0.f));
  }
  /// Whether a value is not finite.
  bool arrange_values(const AttentionArgs& args, const KeyTile& tile, std::int64_t stride) const {
    F32 shown = set1(0.f);
    for (int j = 0; j < tile.count; ++j) shown = operand_row(args, value_row(args, tile, j), v + j * stride, shown);
    for (std::int64_t j = tile.count; j % kBf16Step != 0; ++j)
      for (std::int64_t d = 0; d < stride; d += 16) store(v + j * stride + d, set1(0.f));
    if (!has_nan(shown)) return false;
    for (std::int64_t i = 0; i < tile.count * stride; ++i)
      if (!(v[i] == v[i])) v[i] = 0.f;
    return true;
  }

  /// Adds one step to sums of `a`, whose rows and terms are row_step and term_step apart, times `b`, vectors of
  /// queries.
  template <int kVectorCount>
  static void add_chains(const float* a, std::int64_t row_step, std::int64_t term_step, const float* b,
                         std::int64_t vector_step, std::int64_t b_step, F32 (&sum)[kRows][kVectorCount]) {
    F32 chains[2][kRows][kVectorCount];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectorCount; ++v) chains[0][r][v] = chains[1][r][v] = set1(0.f);
    for (int i = 0; i < kBf16Step; i += 2)
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd, a += term_step, b += b_step) {
        F32 query[kVectorCount];
#pragma GCC unroll 2
        for (int v = 0; v < kVectorCount; ++v) query[v] = load(b + v * vector_step);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const F32 x = set1(a[r * row_step]);
#pragma GCC unroll 2
          for (int v = 0; v < kVectorCount; ++v) chains[odd][r][v] = fma(x, query[v], chains[odd][r][v]);
        }
      }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectorCount; ++v) sum[r][v] = add(sum[r][v], add(chains[0][r][v], chains[1][r][v]));
  }

  template <int kVectorCount, int kStride, bool kMasked>
  void attend(const AttentionGroup& group, const KeyTile& tile, const Ahead&, std::int64_t head_dim,
              std::int64_t stride) const {
    for (int j = 0; j < tile.count; j += kRows) {
      F32 sum[kRows][kVectorCount];
      for (auto& row : sum)
        for (F32& x : row) x = set1(0.f);
      for (std::int64_t d = 0; d < head_dim; d += kBf16Step)
        add_chains(k + j * stride + d, stride, 1, group.q + d * 16, stride * 16, 16, sum);
      for (int r = 0; r < kRows; ++r)
        for (int i = 0; i < kVectorCount; ++i) store(tile.scores + ((j + r) * kVectorCount + i) * 16, sum[r][i]);
    }
    F32 factor[kVectorCount];
    for (int i = 0; i < kVectorCount; ++i)
      factor[i] = weigh_rounded<kVectorCount, kMasked>(group, tile, i, [&](int j, const F32(&weights)[4]) {
        for (int c = 0; c < 4; ++c) store(tile.scores + ((j + c) * kVectorCount + i) * 16, weights[c]);
      });
    for (std::int64_t d = 0; d < head_dim; d += kRows) {
      F32 sum[kRows][kVectorCount];
      for (auto& row : sum)
        for (F32& x : row) x = set1(0.f);
      for (std::int64_t j = 0; j < tile.count; j += kBf16Step)
        add_chains(v + j * stride + d, 1, stride, tile.scores + j * kVectorCount * 16, 16, kVectorCount * 16, sum);
      for (int r = 0; r < kRows; ++r)
        for (int i = 0; i < kVectorCount; ++i) {
          float* const out = group.out + (i * stride + d + r) * 16;
          store(out, fma(load(out), factor[i], sum[r][i]));
        }
    }
  }
  static void finish(const AttentionArgs& args, std::int64_t stride, const AttentionGroup& group) {
    finish_planes(args, stride, group);
  }

  float *k, *v;
};

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
