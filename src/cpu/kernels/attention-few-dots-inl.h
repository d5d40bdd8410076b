#pragma once

#include "cpu/kernels/attention-dots-inl.h"
#include "cpu/kernels/attention-few-inl.h"
#include "cpu/kernels/kernel_set.h"

// Included only by sets that define DLLM_BF16_DOTS (VDPBF16PS); see kernels-inl.h.
//
// Attention in the arithmetic `bf16` of at most eight queries, which have two neighbouring lanes each, as in
// attention-few-inl.h: for scores they hold two keys, for outputs two dimensions. K is interleaved by two keys, and a
// vector of weights has the pairs of both chains: (4 i, 4 i + 2) in even lanes, (4 i + 1, 4 i + 3) in odd ones.

namespace dllm::cpu::DLLM_ISA {
namespace {

struct FewDotForm : DotForm {
  static constexpr int kVectors = 1;
  static constexpr int kRows = 8;  ///< pairs of keys or of dimensions of a register tile
  using DotForm::DotForm;

  static float& output(const AttentionGroup& group, std::int64_t, int query, std::int64_t d) {
    return group.out[d / 2 * 16 + 2 * query + d % 2];
  }

  static void arrange_queries(const AttentionArgs& args, std::int64_t stride, const AttentionGroup& group) {
    const auto twice = [](float* lanes) {
      alignas(64) float both[16];
      for (int i = 0; i < 16; ++i) __builtin_memcpy(both + i, lanes + i / 2, sizeof(float));
      store(lanes, load(both));
    };
    for (std::int64_t d = 0; d < args.head_dim; ++d) twice(group.q + d * 16);
    twice(group.limit);
    DotForm::arrange_queries(args, stride, group);
  }

  void arrange_keys(const AttentionArgs& args, const KeyTile& tile, std::int64_t stride) const {
    as_stored(args, [&]<class Row>(const Row*) { interleave_keys<Row>(args, tile, stride); });
  }
  /// An odd number of keys: the last one again, at a position that no query sees.
  template <class Row>
  void interleave_keys(const AttentionArgs& args, const KeyTile& tile, std::int64_t stride) const {
    const Words order = step_order();
    const std::int64_t padded = padded_dim(args);
    WordRange range;
    for (int j = 0; j < tile.count; j += 2) {
      const int other = j + 1 < tile.count ? j + 1 : j;
      if (other == j) tile.position[j + 1] = 0x7fffffff;
      const Row first(*this, args, key_row(args, tile, j), 0);
      const Row second(*this, args, key_row(args, tile, other), 1);
      float* const to = k + j / 2 * stride;
      for (std::int64_t d = 0; d < padded; d += kBf16Step) {
        const Words a = first.at(d), b = second.at(d);
        range.add(a);
        range.add(b);
        store_zipped(to + d, as_f32(pick(order, a)), as_f32(pick(order, b)));
      }
    }
    if (range.regular()) return;
    for (int j = 0; j < tile.count; j += 2) limit_words(k + j / 2 * stride, padded, 0x7fc0);
  }

  /// Ends a step: the chains are added to each other and then to the sums.
  static inline void end_step(const F32 (&even)[kRows], const F32 (&odd)[kRows], F32 (&sum)[kRows]) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum[r] = add(sum[r], add(even[r], odd[r]));
  }
  static inline void clear(F32 (&sum)[kRows]) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum[r] = set1(0.f);
  }

  /// The counterpart of weigh_rounded(), which stores pairs. Some keys may be hidden, if only the one beyond the last.
  F32 weigh(const AttentionGroup& group, const KeyTile& tile) const {
    const I32 limit = as_i32(load(group.limit));
    const auto visible = [&](int g, const F32& yes, const F32& no) {
      const auto* position = reinterpret_cast<const float*>(tile.position + 2 * g);
      return select_greater(limit, as_i32(load_span<2>(position)), yes, no);
    };
    const int spans = (tile.count + 1) / 2;
    const F32 before = load(group.top);
    F32 top = before;
    for (int g = 0; g < spans; ++g) top = max(visible(g, load(tile.scores + 16 * g), set1(-__builtin_inff())), top);
    top = max(swap_pairs(top), top);
    F32 sum[2] = {set1(0.f), set1(0.f)};
    const auto weight_of = [&](int g) {
      if (g >= spans) return set1(0.f);
      return visible(g, rounded_weight(sub(load(tile.scores + 16 * g), top)), set1(0.f));
    };
    const int steps = static_cast<int>((tile.count + kBf16Step - 1) / kBf16Step);
    for (int i = 0; i < 8 * steps; ++i) {
      const F32 high = weight_of(2 * i), low = weight_of(2 * i + 1);
      sum[0] = add(sum[0], high);
      sum[1] = add(sum[1], low);
      store(weights + 16 * i, pair_of(high, low));
    }
    const F32 both = add(sum[0], sum[1]), factor = exp2_weight(sub(before, top));
    store(group.top, top);
    store(group.sum, fma(load(group.sum), factor, add(both, swap_pairs(both))));
    return factor;
  }

  template <int, int kStride, bool>
  void attend(const AttentionGroup& group, const KeyTile& tile, const Ahead& ahead, std::int64_t head_dim,
              std::int64_t runtime_stride) const {
    const std::int64_t stride = kStride > 0 ? kStride : runtime_stride;
    score(group, tile, ahead.k, ahead.bytes, head_dim, stride);
    const F32 factor = weigh(group, tile);
    mix(group, tile, ahead.v, ahead.bytes, head_dim, stride, factor);
  }

  void score(const AttentionGroup& group, const KeyTile& tile, const std::byte* ahead, std::int64_t ahead_bytes,
             std::int64_t head_dim, std::int64_t stride) const {
    const std::int64_t key_tiles = (tile.count + 2 * kRows - 1) / (2 * kRows);
    const std::int64_t steps = (head_dim + kBf16Step - 1) / kBf16Step;
    const std::int64_t ahead_step = ahead_bytes / (key_tiles * steps * kStepPairs);
    for (std::int64_t key_tile = 0; key_tile < key_tiles; ++key_tile) {
      const float* keys = k + key_tile * kRows * stride;
      F32 sum[kRows];
      clear(sum);
      for (std::int64_t step = 0; step < steps; ++step, keys += kBf16Step) {
        const float* const q = group.q + step * kStepPairs * 16;
        F32 even[kRows], odd[kRows];
        clear(even);
        clear(odd);
        for (int i = 0; i < 8; ++i, ahead += 2 * ahead_step) {
          __builtin_prefetch(ahead, 0, 2);
          __builtin_prefetch(ahead + ahead_step, 0, 2);
          const F32 x = load(q + 16 * i), y = load(q + 16 * (8 + i));
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            even[r] = dot_bf16(even[r], load_span<2>(keys + r * stride + 2 * i), x);
            odd[r] = dot_bf16(odd[r], load_span<2>(keys + r * stride + 2 * (8 + i)), y);
          }
        }
        end_step(even, odd, sum);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) store(tile.scores + (key_tile * kRows + r) * 16, sum[r]);
    }
  }

  void mix(const AttentionGroup& group, const KeyTile& tile, const std::byte* ahead, std::int64_t ahead_bytes,
           std::int64_t head_dim, std::int64_t stride, F32 factor) const {
    const std::int64_t dim_tiles = (head_dim + 2 * kRows - 1) / (2 * kRows);
    const std::int64_t steps = (tile.count + kBf16Step - 1) / kBf16Step;
    const std::int64_t ahead_step = ahead_bytes / (dim_tiles * steps * kStepPairs);
    for (std::int64_t d = 0; d < head_dim; d += 2 * kRows) {
      F32 sum[kRows];
      clear(sum);
      for (std::int64_t step = 0; step < steps; ++step) {
        const float* const values = v + step * kStepPairs * stride + d;
        F32 even[kRows], odd[kRows];
        clear(even);
        clear(odd);
        for (int i = 0; i < 8; ++i, ahead += 2 * ahead_step) {
          __builtin_prefetch(ahead, 0, 2);
          __builtin_prefetch(ahead + ahead_step, 0, 2);
          const F32 both = load(weights + 16 * (8 * step + i));
          const F32 x = spread<2, 0>(both), y = spread<2, 1>(both);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            even[r] = dot_bf16(even[r], load_span<2>(values + i * stride + 2 * r), x);
            odd[r] = dot_bf16(odd[r], load_span<2>(values + (8 + i) * stride + 2 * r), y);
          }
        }
        end_step(even, odd, sum);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        float* const out = group.out + (d / 2 + r) * 16;
        store(out, fma(load(out), factor, sum[r]));
      }
    }
  }

  static void finish(const AttentionArgs& args, std::int64_t, const AttentionGroup& group) {
    for (int i = 0; i < group.queries; ++i) {
      const std::int64_t index = group.first + i;
      float* out = args.out + index / args.group * args.row_stride + index % args.group * args.head_dim;
      const float sum = group.sum[2 * i], inverse = sum == 0.f ? 0.f : 1.f / sum;  // nothing visible: zeros
      for (std::int64_t d = 0; d < args.head_dim; ++d) out[d] = (output(group, 0, i, d) + 0.f) * inverse;
    }
  }
};

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
