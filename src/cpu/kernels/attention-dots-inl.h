#pragma once

#include "cpu/kernels/attention-bf16-inl.h"
#include "cpu/kernels/kernel_set.h"

// Included only by sets that define DLLM_BF16_DOTS (VDPBF16PS); see kernels-inl.h.
//
// Attention in the arithmetic `bf16` by dot products of BF16 pairs, which add the high product of a pair to a lane
// first, then the low one. So a chain of a step is eight instructions, if the operands of both sides are arranged as
//
//   pair i < 8:  (high, low) = (4 i, 4 i + 2)     pair 8 + i:  (4 i + 1, 4 i + 3)
//
// K [key][stride / 2 pairs], queries [stride / 2 pairs][16], weights [pair of keys][16], V [pair of keys][stride]. 4 x
// 2 vectors with two chains and a sum each take 24 registers, and 16 chains cover the latency of 6 cycles (Zen 4: one
// instruction per cycle).

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr std::int64_t kStepPairs = kBf16Step / 2;
/// Prefetches per step and register tile: as many as a tile of keys has cache lines, if head_dim is 128.
template <int kVectors>
constexpr int kStepFetches = 8 / kVectors;

/// Of magnitudes of words: whether all are zero or in [2^-55, 2^54].
struct WordRange {
  Words most = set_words(0), least = set_words(0xffff);
  void add(Words x) {
    const Words twice = add_words(x, x);  // without the sign
    most = max_words(most, twice);
    least = min_words(least, add_words(twice, set_words(0xffff)));  // zero becomes the largest
  }
  bool regular() const {
    return !any_greater(most, set_words(2 * 0x5a80)) && !any_greater(set_words(2 * 0x2400 - 1), least);
  }
};

/// Words of a step in the order of its pairs.
inline Words step_order() {
  std::uint16_t order[kBf16Step];
  for (int i = 0; i < 8; ++i)
    for (int odd = 0; odd < 2; ++odd) {
      order[16 * odd + 2 * i] = static_cast<std::uint16_t>(4 * i + 2 + odd);
      order[16 * odd + 2 * i + 1] = static_cast<std::uint16_t>(4 * i + odd);
    }
  return load_words(order);
}

struct DotForm {
  static constexpr int kVectors = 2;

  explicit DotForm(const AttentionScratch& scratch)
      : k(scratch.k),
        v(scratch.v),
        weights(scratch.k + kKeyTile * scratch.stride / 2),
        floats(scratch.v + kKeyTile * scratch.stride / 2),
        words(reinterpret_cast<std::uint16_t*>(floats + scratch.stride)) {}

  static float& output(const AttentionGroup& group, std::int64_t stride, int query, std::int64_t d) {
    return ChainForm::output(group, stride, query, d);
  }
  static void finish(const AttentionArgs& args, std::int64_t stride, const AttentionGroup& group) {
    finish_planes(args, stride, group);
  }

  /// Pairs of a step of queries take the place of its first half.
  static void arrange_queries(const AttentionArgs& args, std::int64_t stride, const AttentionGroup& group) {
    round_queries(args, stride, group);
    for (int v = 0; 16 * v < group.queries; ++v) {
      float *from = group.q + v * stride * 16, *to = from;
      for (std::int64_t d = 0; d < args.head_dim; d += kBf16Step, from += kBf16Step * 16, to += kStepPairs * 16) {
        F32 pairs[kStepPairs];
        for (int i = 0; i < 8; ++i)
          for (int odd = 0; odd < 2; ++odd) {
            const float* const at = from + (4 * i + odd) * 16;
            pairs[8 * odd + i] = pair_of(load(at), load(at + 2 * 16));
          }
        for (int i = 0; i < kStepPairs; ++i) store(to + i * 16, pairs[i]);
      }
    }
  }

  /// A row of the cache in steps of BF16, not yet limited: in the cache itself, or converted in scratch memory, which
  /// has room for two. (A loop that might call a conversion would keep its vectors in memory.)
  struct WordRow {
    WordRow(const DotForm&, const AttentionArgs&, const std::byte* row, int)
        : words(reinterpret_cast<const std::uint16_t*>(row)) {}
    Words at(std::int64_t d) const { return load_words(words + d); }
    const std::uint16_t* words;
  };
  struct HalfRow {
    HalfRow(const DotForm&, const AttentionArgs&, const std::byte* row, int)
        : words(reinterpret_cast<const std::uint16_t*>(row)) {}
    Words at(std::int64_t d) const { return to_bf16_words(load_half(words + d), load_half(words + d + 16)); }
    const std::uint16_t* words;
  };
  struct FloatRow {
    FloatRow(const DotForm&, const AttentionArgs&, const std::byte* row, int)
        : floats(reinterpret_cast<const float*>(row)) {}
    Words at(std::int64_t d) const { return to_bf16_words(load(floats + d), load(floats + d + 16)); }
    const float* floats;
  };
  struct ConvertedRow {
    ConvertedRow(const DotForm& form, const AttentionArgs& args, const std::byte* row, int place)
        : words(form.convert(args, row, place)) {}
    Words at(std::int64_t d) const { return load_words(words + d); }
    const std::uint16_t* words;
  };
  /// Calls body with a pointer (null) to the kind of rows that the cache has.
  template <class Body>
  static auto as_stored(const AttentionArgs& args, const Body& body) {
    if (args.head_dim % kBf16Step == 0) {
      if (args.type == TensorType::kBF16) return body(static_cast<const WordRow*>(nullptr));
      if (args.type == TensorType::kF16) return body(static_cast<const HalfRow*>(nullptr));
      if (args.type == TensorType::kF32) return body(static_cast<const FloatRow*>(nullptr));
    }
    return body(static_cast<const ConvertedRow*>(nullptr));
  }
  const std::uint16_t* convert(const AttentionArgs& args, const std::byte* row, int place) const {
    widen_padded(args, row, floats);
    const std::int64_t padded = padded_dim(args);
    std::uint16_t* const out = words + place * padded;
    for (std::int64_t d = 0; d < padded; d += kBf16Step)
      store(out + d, to_bf16_words(load(floats + d), load(floats + d + 16)));
    return out;
  }

  void arrange_keys(const AttentionArgs& args, const KeyTile& tile, std::int64_t stride) const {
    as_stored(args, [&]<class Row>(const Row*) { arrange_keys_of<Row>(args, tile, stride); });
  }
  bool arrange_values(const AttentionArgs& args, const KeyTile& tile, std::int64_t stride) const {
    return as_stored(args, [&]<class Row>(const Row*) { return arrange_values_of<Row>(args, tile, stride); });
  }

  template <class Row>
  void arrange_keys_of(const AttentionArgs& args, const KeyTile& tile, std::int64_t stride) const {
    const Words order = step_order();
    const std::int64_t padded = padded_dim(args);
    WordRange range;
    for (int j = 0; j < tile.count; ++j) {
      const Row from(*this, args, key_row(args, tile, j), 0);
      auto* const to = reinterpret_cast<std::uint16_t*>(k + j * (stride / 2));
      for (std::int64_t d = 0; d < padded; d += kBf16Step) {
        const Words x = from.at(d);
        range.add(x);
        store(to + d, pick(order, x));
      }
    }
    if (range.regular()) return;
    for (int j = 0; j < tile.count; ++j) limit_words(k + j * (stride / 2), padded / 2, 0x7fc0);
  }

  /// Rows 4 i + odd (high) and 4 i + odd + 2 (low) of every step, zeros beyond the last. Whether a value is not finite.
  template <class Row>
  bool arrange_values_of(const AttentionArgs& args, const KeyTile& tile, std::int64_t stride) const {
    WordRange range;
    const std::int64_t padded = padded_dim(args);
    const auto row = [&](std::int64_t j, int place) { return Row(*this, args, value_row(args, tile, j), place); };
    for (std::int64_t j = 0; j < tile.count; j += 4)
      for (std::int64_t odd = 0; odd < 2; ++odd) {
        float* const to = v + pair_row(j, odd) * stride;
        const auto pairs = [&](auto low, auto high) __attribute__((always_inline)) {
          for (std::int64_t d = 0; d < padded; d += kBf16Step) {
            const Words a = low(d), b = high(d);
            range.add(a);
            range.add(b);
            store(reinterpret_cast<std::uint16_t*>(to + d), zip_low(a, b));
            store(reinterpret_cast<std::uint16_t*>(to + d + 16), zip_high(a, b));
          }
        };
        const auto none = [](std::int64_t) { return set_words(0); };
        if (j + odd + 2 < tile.count) {
          const Row high = row(j + odd, 0), low = row(j + odd + 2, 1);
          pairs([&](std::int64_t d) { return low.at(d); }, [&](std::int64_t d) { return high.at(d); });
        } else if (j + odd < tile.count) {
          const Row high = row(j + odd, 0);
          pairs(none, [&](std::int64_t d) { return high.at(d); });
        } else {
          pairs(none, none);
        }
      }
    for (std::int64_t j = (tile.count + 3) / 4 * 4; j % kBf16Step != 0; j += 4)
      for (std::int64_t odd = 0; odd < 2; ++odd)
        for (std::int64_t d = 0; d < padded; d += 16) store(v + pair_row(j, odd) * stride + d, set1(0.f));
    if (range.regular()) return false;
    bool missing = false;
    const std::int64_t slots = (tile.count + kBf16Step - 1) / kBf16Step * kBf16Step;
    for (std::int64_t pair = 0; pair < slots / 2; ++pair)
      missing = limit_words(v + pair * stride, padded, 0) || missing;
    return missing;
  }

  /// Of the pair that begins with slot j + odd, j a multiple of 4.
  static std::int64_t pair_row(std::int64_t j, std::int64_t odd) {
    return j / kBf16Step * kStepPairs + odd * 8 + j % kBf16Step / 4;
  }

  /// Pairs of numbers: of several rows, or vectors of queries.
  struct Pairs {
    const float* first;
    std::int64_t step;       ///< from one row or vector to the next
    std::int64_t pair_step;  ///< from one pair to the next
  };

  /// What is fetched meanwhile.
  struct Fetched {
    const std::byte* next;
    std::int64_t step;
  };

  /// Adds one step to sums of rows `a` times queries `b`.
  template <int kRows, int kVectorCount>
  static inline void add_dots(Pairs a, Pairs b, Fetched& ahead, F32 (&sum)[kRows][kVectorCount]) {
    F32 even[kRows][kVectorCount], odd[kRows][kVectorCount];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectorCount; ++v) even[r][v] = odd[r][v] = set1(0.f);
    for (int i = 0; i < 8; ++i, a.first += a.pair_step, b.first += b.pair_step) {
      if (i % (8 / kStepFetches<kVectorCount>) == 0) __builtin_prefetch(ahead.next, 0, 2), ahead.next += ahead.step;
      F32 query[kVectorCount];
#pragma GCC unroll 2
      for (int v = 0; v < kVectorCount; ++v) query[v] = load(b.first + v * b.step);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const F32 x = set1(a.first[r * a.step]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectorCount; ++v) even[r][v] = dot_bf16(even[r][v], x, query[v]);
      }
#pragma GCC unroll 2
      for (int v = 0; v < kVectorCount; ++v) query[v] = load(b.first + v * b.step + 8 * b.pair_step);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const F32 x = set1(a.first[r * a.step + 8 * a.pair_step]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectorCount; ++v) odd[r][v] = dot_bf16(odd[r][v], x, query[v]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectorCount; ++v) sum[r][v] = add(sum[r][v], add(even[r][v], odd[r][v]));
  }

  template <int kRows, int kVectorCount>
  static inline void clear(F32 (&sum)[kRows][kVectorCount]) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectorCount; ++v) sum[r][v] = set1(0.f);
  }

  template <int kVectorCount, int kStride, bool kMasked>
  void attend(const AttentionGroup& group, const KeyTile& tile, const Ahead& fetch, std::int64_t head_dim,
              std::int64_t runtime_stride) const {
    constexpr int kRows = 8 / kVectorCount;
    const std::int64_t stride = kStride > 0 ? kStride : runtime_stride;
    const std::int64_t key_steps =
        (head_dim + kBf16Step - 1) / kBf16Step * kStepFetches<kVectorCount> * ((tile.count + kRows - 1) / kRows);
    const std::int64_t value_steps =
        (tile.count + kBf16Step - 1) / kBf16Step * kStepFetches<kVectorCount> * ((head_dim + kRows - 1) / kRows);
    Fetched keys_ahead = {fetch.k, fetch.bytes / key_steps};
    for (int j = 0; j < tile.count; j += kRows) {
      F32 sum[kRows][kVectorCount];
      clear(sum);
      for (std::int64_t d = 0; d < head_dim; d += kBf16Step)
        add_dots({k + (j * stride + d) / 2, stride / 2, 1}, {group.q + d / 2 * 16, stride * 16, 16}, keys_ahead, sum);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int i = 0; i < kVectorCount; ++i) store(tile.scores + ((j + r) * kVectorCount + i) * 16, sum[r][i]);
    }
    F32 factor[kVectorCount];
#pragma GCC unroll 2
    for (int i = 0; i < kVectorCount; ++i)
      factor[i] = weigh_rounded<kVectorCount, kMasked>(group, tile, i, [&](int j, const F32(&w)[4]) {
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; ++odd)
          store(weights + (pair_row(j, odd) * kVectorCount + i) * 16, pair_of(w[odd], w[odd + 2]));
      });
    Fetched values_ahead = {fetch.v, fetch.bytes / value_steps};
    for (std::int64_t d = 0; d < head_dim; d += kRows) {
      F32 sum[kRows][kVectorCount];
      clear(sum);
      for (std::int64_t j = 0; j < tile.count; j += kBf16Step)
        add_dots({v + j / 2 * stride + d, 1, stride}, {weights + j / 2 * kVectorCount * 16, 16, kVectorCount * 16},
                 values_ahead, sum);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int i = 0; i < kVectorCount; ++i) {
          float* const out = group.out + (i * stride + d + r) * 16;
          store(out, fma(load(out), factor[i], sum[r][i]));
        }
    }
  }

  float *k, *v, *weights, *floats;
  std::uint16_t* words;
};

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
