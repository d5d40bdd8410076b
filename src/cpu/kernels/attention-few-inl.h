#pragma once

#include "cpu/kernels/attention-inl.h"
#include "cpu/kernels/kernel_set.h"

// Attention of at most eight queries per kv head. With a query per lane most lanes would idle, and on a model without
// shared kv heads a step of few rows would be bound by arithmetic instead of by reading K and V. Here a query has kSpan
// neighbouring lanes (2 or 4): for scores they hold kSpan keys, for outputs kSpan dimensions. Every sum has the same
// terms in the same order as with one lane per query, so the bits are the same.
//
// K is interleaved by kSpan keys once per tile (one shuffle per 16 elements and level); V needs no change. At 8 rows of
// LLaDA-8B, K and V in the caches, it is 1.4 (AVX-512) and 1.5 times (AVX2) as fast, at 1 row 2.3 and 2.2.

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr int kFewBlock = kAttentionKeys * kAttentionVectors;  ///< accumulators, as in the wide tiles

template <int kSpan>
void begin_few(const AttentionArgs& args, AttentionGroup& group) {
  const float scale = query_scale(args);
  group.least = group.most = args.limits[group.first / args.group];
  store(group.limit, set1(0.f));
  for (std::int64_t d = 0; d < args.head_dim; ++d) store(group.q + 16 * d, set1(0.f));
  for (int i = 0; i < group.queries; ++i) {
    const float* q = query(args, group.first + i);
    const std::int32_t limit = args.limits[(group.first + i) / args.group];
    group.least = limit < group.least ? limit : group.least;
    group.most = limit > group.most ? limit : group.most;
    for (int s = 0; s < kSpan; ++s) {
      const int lane = i * kSpan + s;
      __builtin_memcpy(group.limit + lane, &limit, sizeof limit);
      for (std::int64_t d = 0; d < args.head_dim; ++d) group.q[16 * d + lane] = q[d] * scale;
    }
  }
  rotate_queries(args, group.q);
  store(group.top, set1(-1e30f));
  store(group.sum, set1(0.f));
  for (std::int64_t d = 0; d < args.head_dim + kSpan * kFewBlock; d += kSpan)
    store(group.out + d / kSpan * 16, set1(0.f));
}

template <int kSpan>
void end_few(const AttentionArgs& args, const AttentionGroup& group) {
  for (int i = 0; i < group.queries; ++i) {
    const std::int64_t index = group.first + i;
    float* out = args.out + index / args.group * args.row_stride + index % args.group * args.head_dim;
    const float sum = group.sum[i * kSpan], inverse = sum == 0.f ? 0.f : 1.f / sum;  // nothing visible: zeros
    for (std::int64_t d = 0; d < args.head_dim; ++d)
      out[d] = group.out[d / kSpan * 16 + i * kSpan + d % kSpan] * inverse;
  }
}

/// rows[key][d] to out[key / kSpan][d][key % kSpan].
template <int kSpan>
void interleave(const float* rows, std::int64_t stride, std::int64_t dims, int keys, float* out) {
  for (int j = 0; j < keys; j += kSpan, rows += kSpan * stride, out += kSpan * stride)
    for (std::int64_t d = 0; d < dims; d += 16) {
      const float* r = rows + d;
      if constexpr (kSpan == 2) {
        store_zipped(out + 2 * d, load(r), load(r + stride));
      } else {
        alignas(64) float even[32], odd[32];
        store_zipped(even, load(r), load(r + 2 * stride));
        store_zipped(odd, load(r + stride), load(r + 3 * stride));
        store_zipped(out + 4 * d, load(even), load(odd));
        store_zipped(out + 4 * d + 32, load(even + 16), load(odd + 16));
      }
    }
}

/// The counterpart of score_block() and weigh(); scores[key / kSpan][query][key % kSpan].
template <int kSpan, int kStride>
inline void score_few(const float* k, const float* q, std::int64_t dims, std::int64_t runtime_stride,
                      const std::byte* ahead, std::int64_t ahead_step, float* scores) {
  const std::int64_t stride = kStride > 0 ? kStride : runtime_stride;
  F32 acc[kFewBlock];
#pragma GCC unroll 16
  for (int g = 0; g < kFewBlock; ++g) acc[g] = set1(0.f);
  for (std::int64_t d = 0; d < dims; ++d, ahead += ahead_step) {
    __builtin_prefetch(ahead, 0, 2);
    const F32 query = load(q + 16 * d);
#pragma GCC unroll 16
    for (int g = 0; g < kFewBlock; ++g) acc[g] = fma(load_span<kSpan>(k + (g * stride + d) * kSpan), query, acc[g]);
  }
#pragma GCC unroll 16
  for (int g = 0; g < kFewBlock; ++g) store(scores + 16 * g, acc[g]);
}

template <int kSpan, bool kMasked>
inline F32 weigh_few(const AttentionGroup& group, const KeyTile& tile, int spans) {
  const I32 limit = as_i32(load(group.limit));
  const auto visible = [&](int g, const F32& yes, const F32& no) {
    const auto* position = reinterpret_cast<const float*>(tile.position + g * kSpan);
    return select_greater(limit, as_i32(load_span<kSpan>(position)), yes, no);
  };
  const F32 before = load(group.top);
  F32 top = before;
  for (int g = 0; g < spans; ++g) {
    F32 s = load(tile.scores + 16 * g);
    if constexpr (kMasked) {
      s = visible(g, s, set1(-__builtin_inff()));
      store(tile.scores + 16 * g, s);
    }
    top = max(s, top);
  }
  if constexpr (kSpan == 4) top = max(swap_halves(top), top);
  top = max(swap_pairs(top), top);
  // The four sums over key mod 4: in kSpan lanes of 4 / kSpan vectors.
  F32 sum[2] = {set1(0.f), set1(0.f)};
  for (int g = 0; g < spans; ++g) {
    F32 weight = exp2_weight(sub(load(tile.scores + 16 * g), top));
    if constexpr (kMasked) weight = visible(g, weight, set1(0.f));
    store(tile.scores + 16 * g, weight);
    F32& chain = sum[kSpan == 2 ? g % 2 : 0];
    chain = add(chain, weight);
  }
  const F32 pairs = kSpan == 2 ? add(sum[0], sum[1]) : add(sum[0], swap_halves(sum[0]));
  const F32 factor = exp2_weight(sub(before, top));
  store(group.top, top);
  store(group.sum, fma(load(group.sum), factor, add(pairs, swap_pairs(pairs))));
  return factor;
}

/// The counterpart of mix_block() for kFewBlock * kSpan dimensions.
template <int kSpan, int kStride, bool kMasked>
inline void mix_few(const AttentionGroup& group, const KeyTile& tile, std::int64_t dim, std::int64_t runtime_stride,
                    const std::byte* ahead, std::int64_t ahead_step, const F32& factor) {
  const std::int64_t stride = kStride > 0 ? kStride : runtime_stride;
  float* out = group.out + dim / kSpan * 16;
  const I32 limit = as_i32(load(group.limit));
  F32 acc[kFewBlock];
#pragma GCC unroll 16
  for (int h = 0; h < kFewBlock; ++h) acc[h] = mul(load(out + 16 * h), factor);
  const float* value = tile.v + dim;
  const auto add_key = [&](int j, const F32& weight) __attribute__((always_inline)) {
    __builtin_prefetch(ahead + j * ahead_step, 0, 2);
#pragma GCC unroll 16
    for (int h = 0; h < kFewBlock; ++h) {
      const F32 next = fma(load_span<kSpan>(value + j * stride + h * kSpan), weight, acc[h]);
      acc[h] = kMasked ? select_greater(limit, set1(tile.position[j]), next, acc[h]) : next;
    }
  };
  int j = 0;
  for (; j + kSpan <= tile.count; j += kSpan) {
    const F32 weight = load(tile.scores + j / kSpan * 16);
    add_key(j, spread<kSpan, 0>(weight));
    add_key(j + 1, spread<kSpan, 1>(weight));
    if constexpr (kSpan == 4) {
      add_key(j + 2, spread<4, 2>(weight));
      add_key(j + 3, spread<4, 3>(weight));
    }
  }
  if (j < tile.count) {
    const F32 weight = load(tile.scores + j / kSpan * 16);
    add_key(j, spread<kSpan, 0>(weight));
    if constexpr (kSpan == 4) {
      if (j + 1 < tile.count) add_key(j + 1, spread<4, 1>(weight));
      if (j + 2 < tile.count) add_key(j + 2, spread<4, 2>(weight));
    }
  }
#pragma GCC unroll 16
  for (int h = 0; h < kFewBlock; ++h) store(out + 16 * h, acc[h]);
}

template <int kSpan, int kStride, bool kMasked>
void attend_few_tile(const AttentionGroup& group, const KeyTile& tile, const Ahead& ahead, std::int64_t head_dim,
                     std::int64_t stride) {
  constexpr int kDims = kFewBlock * kSpan;
  const int spans = (tile.count + kSpan - 1) / kSpan;
  const std::int64_t key_step = ahead.bytes / ((spans + kFewBlock - 1) / kFewBlock * head_dim);
  const std::int64_t value_step = ahead.bytes / ((head_dim + kDims - 1) / kDims * tile.count);
  for (int g = 0; g < spans; g += kFewBlock)
    score_few<kSpan, kStride>(tile.k + g * kSpan * stride, group.q, head_dim, stride,
                              ahead.k + g / kFewBlock * head_dim * key_step, key_step, tile.scores + 16 * g);
  const F32 factor = weigh_few<kSpan, kMasked>(group, tile, spans);
  for (std::int64_t dim = 0; dim < head_dim; dim += kDims)
    mix_few<kSpan, kStride, kMasked>(group, tile, dim, stride, ahead.v + dim / kDims * tile.count * value_step,
                                     value_step, factor);
}

template <int kSpan, int kStride>
void attend_few(const AttentionArgs& args) {
  AttentionScratch scratch(args, kStride);
  const std::int64_t stride = scratch.stride;
  KeyTile& tile = scratch.tile;
  fetch_first(args);
  AttentionGroup group = scratch.take_group(args.begin, static_cast<int>(args.end - args.begin));
  begin_few<kSpan>(args, group);
  for_each_tile(args, group.most, tile, [&](const Ahead& ahead) {
    // Uses V's place as an intermediate, which is filled afterwards. Positions beyond the last are hidden from all
    // queries.
    widen_keys(args, stride, tile, scratch.v);
    interleave<kSpan>(scratch.v, stride, args.head_dim, tile.count, scratch.k);
    widen_values(args, stride, tile, scratch.v);
    bool masked = tile.position[tile.count - 1] >= group.least;
    for (int j = tile.count; j % kSpan != 0; ++j) tile.position[j] = 0x7fffffff, masked = true;
    if (masked) return attend_few_tile<kSpan, kStride, true>(group, tile, ahead, args.head_dim, stride);
    attend_few_tile<kSpan, kStride, false>(group, tile, ahead, args.head_dim, stride);
  });
  end_few<kSpan>(args, group);
}

template <int kStride>
void attend_any(const AttentionArgs& args) {
  // With 16 lanes in one register, the second level of interleaving costs as much as the shorter sums save (1.8 against
  // 1.9 us per tile of 64 keys); with two and more it pays off (1 query on AVX2: half the time).
  if (kAttentionVectors == 1 && args.end - args.begin <= 4) return attend_few<4, kStride>(args);
  if (args.end - args.begin <= 8) return attend_few<2, kStride>(args);
  attend<kStride>(args);
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
