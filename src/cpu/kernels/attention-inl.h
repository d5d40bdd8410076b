#pragma once

#include "cpu/kernels/cached_rows-inl.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/math-inl.h"

// Attention with one pass over the keys (online softmax: Milakov and Gimelshein 2018, "Online normalizer calculation
// for softmax"; tiled as in FlashAttention, Dao et al. 2022). A lane is a query. All operations are then vertical:
// scores are sums over dimensions of (key element, broadcast) x (queries), outputs are sums over keys of (value
// element, broadcast) x (weights of the queries), maxima and sums of the softmax run from key to key, and no step
// combines lanes. So
//
// - a query's result cannot depend on the queries that share its vectors;
// - K needs no transposition; only queries and outputs do, once per call, not once per key;
// - query heads that share a kv head and rows of the step fill lanes alike.
//
// The order of operations, which all sets share: keys come in tiles of kKeyTile positions, aligned to position 0, so
// that the tiling is a property of the cache and not of the ranges in the plan. Within a tile the visible keys ascend.
// Per query and tile, with s in units of log2 (the scale and log2 e are multiplied into the query):
//
//   s_j = fma over dimensions, ascending, from 0          t' = max(t, s_0, s_1, ...)
//   w_j = 2^(s_j - t'),  c = 2^(t - t')                   l' = fma(l, c, (S_0 + S_2) + (S_1 + S_3))
//                                                         S_i = w_i + w_(i+4) + ..., ascending, from 0
//   o_d = fma over j, ascending, from o_d c, of v_jd w_j
//
// A tile in which a query sees nothing leaves its state unchanged, bit for bit (c = 1), so the result is a function of
// the visible set alone. If the queries of a tile see different keys (only in causal plans), lanes are masked by
// selection, not by weights of zero: 0 x NaN would let a query see hidden values.
//
// Rejected: vectors of keys (K transposed per tile: 64 shuffles per 256 elements, and horizontal maxima and sums);
// vectors of head dimensions (a horizontal sum per score, the previous kernel); VNNI dot products (their bits differ
// from the other sets'). Products of BF16 are an arithmetic of their own: attention-bf16-inl.h.

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr std::int64_t kLanes = 16 * kAttentionVectors;  ///< queries of a group

/// What one call keeps from tile to tile, all in the caller's scratch memory.
struct AttentionGroup {
  float* q;      ///< [vectors][stride][16], scaled
  float* out;    ///< [vectors][stride][16], not yet divided
  float* top;    ///< [vectors][16]
  float* sum;    ///< [vectors][16]
  float* limit;  ///< [vectors][16], int32 bits: the first hidden position of the query
  std::int64_t first;
  int queries;
  std::int32_t least, most;  ///< of the limits
};

struct KeyTile {
  const float* k;  ///< [keys][stride], rows beyond `count` may hold anything: their scores are not read
  const float* v;
  float* scores;           ///< [keys][vectors][16]
  std::int32_t* position;  ///< [keys]
  std::int32_t* source;    ///< [keys], of their ranges
  int count;
};

/// Row j of a tile, in the cache that holds it.
inline const std::byte* key_row(const AttentionArgs& args, const KeyTile& tile, std::int64_t j) {
  const std::int32_t source = tile.source[j];
  return (source == 0 ? args.k : args.shared[source - 1].k) + tile.position[j] * args.position_bytes;
}
inline const std::byte* value_row(const AttentionArgs& args, const KeyTile& tile, std::int64_t j) {
  const std::int32_t source = tile.source[j];
  return (source == 0 ? args.v : args.shared[source - 1].v) + tile.position[j] * args.position_bytes;
}

/// Rows of the next tile, prefetched while this one is computed: one cache line after the other, spread evenly over the
/// iterations of the register tiles, which have spare load slots. The hardware prefetcher does not run far enough ahead
/// over so short a range; prefetching in bursts between register tiles did not help either (it fills the miss buffers).
struct Ahead {
  const std::byte* k;
  const std::byte* v;
  std::int64_t bytes;  ///< of each; 0: nothing to fetch
};

inline void widen_keys(const AttentionArgs& args, std::int64_t stride, const KeyTile& tile, float* dst) {
  widen_rows(args, stride, tile.count, dst, [&](int j) { return key_row(args, tile, j); });
}
inline void widen_values(const AttentionArgs& args, std::int64_t stride, const KeyTile& tile, float* dst) {
  widen_rows(args, stride, tile.count, dst, [&](int j) { return value_row(args, tile, j); });
}

/// Scores of kKeys keys for kVectors vectors of queries. kStride: constant offsets instead of a pointer per key.
template <int kKeys, int kVectors, int kStride>
inline void score_block(const float* k, const float* q, std::int64_t dims, std::int64_t runtime_stride,
                        const std::byte* ahead, std::int64_t ahead_step, float* scores) {
  const std::int64_t stride = kStride > 0 ? kStride : runtime_stride;
  F32 acc[kKeys][kVectors];
#pragma GCC unroll 16
  for (int j = 0; j < kKeys; ++j)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[j][v] = set1(0.f);
  for (std::int64_t d = 0; d < dims; ++d, ahead += ahead_step) {
    __builtin_prefetch(ahead, 0, 2);
    F32 query[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) query[v] = load(q + (v * stride + d) * 16);
#pragma GCC unroll 16
    for (int j = 0; j < kKeys; ++j) {
      const F32 key = set1(k[j * stride + d]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[j][v] = fma(key, query[v], acc[j][v]);
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < kKeys; ++j)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) store(scores + (j * kVectors + v) * 16, acc[j][v]);
}

/// The maximum of the scores so far, for one vector of queries; hidden scores become -inf.
template <int kVectors, bool kMasked>
inline F32 top_score(const AttentionGroup& group, const KeyTile& tile, int v) {
  const I32 limit = as_i32(load(group.limit + 16 * v));
  float* scores = tile.scores + 16 * v;
  F32 top = load(group.top + 16 * v);
  for (int j = 0; j < tile.count; ++j) {
    F32 s = load(scores + j * kVectors * 16);
    if constexpr (kMasked) {
      s = select_greater(limit, set1(tile.position[j]), s, set1(-__builtin_inff()));
      store(scores + j * kVectors * 16, s);
    }
    top = max(s, top);  // the second operand wins against NaN, so the NaN stays in the weights
  }
  return top;
}

/// Turns scores into weights for one vector of queries; updates its maximum and sum, returns the rescaling factor.
template <int kVectors, bool kMasked>
inline F32 weigh(const AttentionGroup& group, const KeyTile& tile, int v) {
  const I32 limit = as_i32(load(group.limit + 16 * v));
  const F32 before = load(group.top + 16 * v);
  float* scores = tile.scores + 16 * v;
  const F32 top = top_score<kVectors, kMasked>(group, tile, v);
  F32 sum[4];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) sum[c] = set1(0.f);
  const auto weigh_key = [&](int j) {
    F32 weight = exp2_weight(sub(load(scores + j * kVectors * 16), top));
    if constexpr (kMasked) weight = select_greater(limit, set1(tile.position[j]), weight, set1(0.f));
    store(scores + j * kVectors * 16, weight);
    return weight;
  };
  int j = 0;
  for (; j + 4 <= tile.count; j += 4)
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) sum[c] = add(sum[c], weigh_key(j + c));
  for (int c = 0; j < tile.count; ++j, ++c) sum[c] = add(sum[c], weigh_key(j));
  const F32 factor = exp2_weight(sub(before, top));
  store(group.top + 16 * v, top);
  store(group.sum + 16 * v, fma(load(group.sum + 16 * v), factor, add(add(sum[0], sum[2]), add(sum[1], sum[3]))));
  return factor;
}

/// Adds the tile's weighted values to kDims dimensions of the outputs.
template <int kDims, int kVectors, int kStride, bool kMasked>
inline void mix_block(const AttentionGroup& group, const KeyTile& tile, std::int64_t dim, std::int64_t runtime_stride,
                      const std::byte* ahead, std::int64_t ahead_step, const F32 (&factor)[kVectors]) {
  const std::int64_t stride = kStride > 0 ? kStride : runtime_stride;
  float* out = group.out + dim * 16;
  F32 acc[kDims][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kDims; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[i][v] = mul(load(out + (v * stride + i) * 16), factor[v]);
  const float *value = tile.v + dim, *weights = tile.scores;
  for (int j = 0; j < tile.count; ++j, value += stride, weights += kVectors * 16, ahead += ahead_step) {
    __builtin_prefetch(ahead, 0, 2);
    F32 weight[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) weight[v] = load(weights + 16 * v);
#pragma GCC unroll 16
    for (int i = 0; i < kDims; ++i) {
      const F32 element = set1(value[i]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const F32 next = fma(element, weight[v], acc[i][v]);
        if constexpr (kMasked) {
          acc[i][v] = select_greater(as_i32(load(group.limit + 16 * v)), set1(tile.position[j]), next, acc[i][v]);
        } else {
          acc[i][v] = next;
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kDims; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) store(out + (v * stride + i) * 16, acc[i][v]);
}

template <int kVectors, int kStride, bool kMasked>
void attend_tile(const AttentionGroup& group, const KeyTile& tile, const Ahead& ahead, std::int64_t head_dim,
                 std::int64_t stride) {
  // A group of one vector processes twice the keys, with the same number of accumulators.
  constexpr int kKeys = kAttentionKeys * kAttentionVectors / kVectors;
  const std::int64_t key_step = ahead.bytes / ((tile.count + kKeys - 1) / kKeys * head_dim);
  const std::int64_t value_step = ahead.bytes / ((head_dim + kKeys - 1) / kKeys * tile.count);
  for (int j = 0; j < tile.count; j += kKeys)
    score_block<kKeys, kVectors, kStride>(tile.k + j * stride, group.q, head_dim, stride,
                                          ahead.k + j / kKeys * head_dim * key_step, key_step,
                                          tile.scores + j * kVectors * 16);
  F32 factor[kVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) factor[v] = weigh<kVectors, kMasked>(group, tile, v);
  for (std::int64_t dim = 0; dim < head_dim; dim += kKeys)
    mix_block<kKeys, kVectors, kStride, kMasked>(group, tile, dim, stride,
                                                 ahead.v + dim / kKeys * tile.count * value_step, value_step, factor);
}

template <int kStride>
void attend_group(const AttentionGroup& group, const KeyTile& tile, const Ahead& ahead, std::int64_t head_dim,
                  std::int64_t stride) {
  if (tile.position[0] >= group.most) return;
  const bool masked = tile.position[tile.count - 1] >= group.least;
  if (kAttentionVectors == 1 || group.queries > 16) {
    if (masked) return attend_tile<kAttentionVectors, kStride, true>(group, tile, ahead, head_dim, stride);
    return attend_tile<kAttentionVectors, kStride, false>(group, tile, ahead, head_dim, stride);
  }
  if (masked) return attend_tile<1, kStride, true>(group, tile, ahead, head_dim, stride);
  attend_tile<1, kStride, false>(group, tile, ahead, head_dim, stride);
}

inline const float* query(const AttentionArgs& args, std::int64_t index) {
  return args.q + index / args.group * args.row_stride + index % args.group * args.head_dim;
}

inline void begin_group(const AttentionArgs& args, std::int64_t stride, AttentionGroup& group) {
  const F32 scale = set1(query_scale(args));
  group.least = group.most = args.limits[group.first / args.group];
  for (int v = 0; 16 * v < group.queries; ++v) {
    float* plane = group.q + v * stride * 16;
    const int lanes = group.queries - 16 * v < 16 ? group.queries - 16 * v : 16;
    for (std::int64_t dim = 0; dim < args.head_dim; dim += 16) {
      alignas(64) float block[16][16] = {};
      const int dims = count_of(dim, args.head_dim);
      for (int i = 0; i < lanes; ++i)
        store(block[i], mul(load_n(query(args, group.first + 16 * v + i) + dim, dims), scale));
      transpose16(reinterpret_cast<const std::uint32_t*>(block), 16,
                  reinterpret_cast<std::uint32_t*>(plane + dim * 16));
    }
    rotate_queries(args, plane);
    for (int i = 0; i < 16; ++i) {
      // Lanes without a query repeat the last one's limit, so they need no mask.
      const int lane = i < lanes ? i : lanes - 1;
      const std::int32_t limit = args.limits[(group.first + 16 * v + lane) / args.group];
      __builtin_memcpy(group.limit + 16 * v + i, &limit, sizeof limit);
      group.least = limit < group.least ? limit : group.least;
      group.most = limit > group.most ? limit : group.most;
    }
    // A finite start keeps 2^(top - top) at 1 for lanes that have seen nothing yet.
    store(group.top + 16 * v, set1(-1e30f));
    store(group.sum + 16 * v, set1(0.f));
    for (std::int64_t i = 0; i < stride; ++i) store(group.out + (v * stride + i) * 16, set1(0.f));
  }
}

inline void end_group(const AttentionArgs& args, std::int64_t stride, const AttentionGroup& group) {
  for (int v = 0; 16 * v < group.queries; ++v) {
    alignas(64) float inverse[16], block[16][16];
    for (int i = 0; i < 16; ++i) {
      const float sum = group.sum[16 * v + i];
      inverse[i] = sum == 0.f ? 0.f : 1.f / sum;  // nothing visible: zeros
    }
    const int lanes = group.queries - 16 * v < 16 ? group.queries - 16 * v : 16;
    for (std::int64_t dim = 0; dim < args.head_dim; dim += 16) {
      float* plane = group.out + (v * stride + dim) * 16;
      for (int i = 0; i < 16; ++i) store(plane + 16 * i, mul(load(plane + 16 * i), load(inverse)));
      transpose16(reinterpret_cast<const std::uint32_t*>(plane), 16, reinterpret_cast<std::uint32_t*>(block));
      const int dims = count_of(dim, args.head_dim);
      for (int i = 0; i < lanes; ++i) {
        const std::int64_t index = group.first + 16 * v + i;
        float* out = args.out + index / args.group * args.row_stride + index % args.group * args.head_dim;
        store_n(out + dim, load(block[i]), dims);
      }
    }
  }
}

/// Visible positions of the tile, ascending; `range` is the first range that may reach into it.
inline int list_visible(const AttentionArgs& args, std::int64_t tile_end, std::int64_t end, std::int64_t& range,
                        std::int64_t& next, const KeyTile& tile) {
  int count = 0;
  while (range < args.range_count) {
    const KeyRange& r = args.ranges[range];
    if (next < r.begin) next = r.begin;
    const std::int64_t stop = r.end < end ? r.end : end;
    for (; next < stop && next < tile_end; ++next, ++count) {
      tile.position[count] = static_cast<std::int32_t>(next);
      tile.source[count] = r.source;
    }
    if (next < stop || next >= end) break;
    ++range;
  }
  return count;
}

/// The rows of the next tile, up to where its range ends.
inline Ahead next_rows(const AttentionArgs& args, std::int64_t range, std::int64_t next) {
  if (range == args.range_count) return {args.k, args.v, 0};
  const KeyRange& r = args.ranges[range];
  const std::int64_t begin = next > r.begin ? next : r.begin, rows = r.end - begin;
  const SharedRows from = r.source == 0 ? SharedRows{args.k, args.v} : args.shared[r.source - 1];
  return {from.k + begin * args.position_bytes, from.v + begin * args.position_bytes,
          args.position_bytes * (rows < kKeyTile ? rows : kKeyTile)};
}

/// The first tile is fetched while the queries are laid out.
inline void fetch_first(const AttentionArgs& args) {
  const Ahead first = next_rows(args, 0, 0);
  for (std::int64_t i = 0; i < first.bytes; i += 64) {
    __builtin_prefetch(first.k + i, 0, 2);
    __builtin_prefetch(first.v + i, 0, 2);
  }
}

/// The caller's scratch: K and V of a tile, its scores and positions, then the groups.
struct AttentionScratch {
  AttentionScratch(const AttentionArgs& args, int constant_stride, std::int64_t queries = kLanes)
      : stride(constant_stride > 0 ? constant_stride : attention_stride(args.head_dim)),
        lanes(queries),
        next(static_cast<float*>(args.scratch)),
        k(take(kKeyTile * stride)),
        v(take(kKeyTile * stride)),
        tile{k,
             v,
             take(kKeyTile * lanes),
             reinterpret_cast<std::int32_t*>(take(kKeyTile)),
             reinterpret_cast<std::int32_t*>(take(kKeyTile)),
             0} {}

  float* take(std::int64_t floats) {
    float* at = next;
    next += floats;
    return at;
  }
  AttentionGroup take_group(std::int64_t first, int queries) {
    float *q = take(stride * lanes), *out = take(stride * lanes);
    return {q, out, take(lanes), take(lanes), take(lanes), first, queries, 0, 0};
  }

  std::int64_t stride, lanes;
  float* next;
  float *k, *v;
  KeyTile tile;
};

/// The groups of a call, with their queries.
struct AttentionGroups {
  AttentionGroups(const AttentionArgs& args, AttentionScratch& scratch) {
    for (std::int64_t i = args.begin; i < args.end; i += scratch.lanes) {
      AttentionGroup& group = all[count++];
      group = scratch.take_group(i, static_cast<int>(args.end - i < scratch.lanes ? args.end - i : scratch.lanes));
      begin_group(args, scratch.stride, group);
      seen = group.most > seen ? group.most : seen;
    }
  }
  AttentionGroup* begin() { return all; }
  AttentionGroup* end() { return all + count; }

  AttentionGroup all[kAttentionQueries / 16];
  int count = 0;
  std::int64_t seen = 0;  ///< end of the positions that any of them sees
};

/// Fills in the positions of one tile after the other, up to position `end`, and calls body(ahead).
template <class Body>
inline void for_each_tile(const AttentionArgs& args, std::int64_t end, KeyTile& tile, const Body& body) {
  std::int64_t range = 0, next = 0;
  while (range < args.range_count) {
    if (next < args.ranges[range].begin) next = args.ranges[range].begin;
    if (next >= end) break;
    tile.count = list_visible(args, next / kKeyTile * kKeyTile + kKeyTile, end, range, next, tile);
    if (tile.count > 0) body(next_rows(args, range, next));
  }
}

template <int kStride>
void attend(const AttentionArgs& args) {
  AttentionScratch scratch(args, kStride);
  const std::int64_t stride = scratch.stride;
  KeyTile& tile = scratch.tile;
  fetch_first(args);
  AttentionGroups groups(args, scratch);
  for_each_tile(args, groups.seen, tile, [&](Ahead ahead) {
    widen_keys(args, stride, tile, scratch.k);
    widen_values(args, stride, tile, scratch.v);
    for (const AttentionGroup& group : groups) {
      attend_group<kStride>(group, tile, ahead, args.head_dim, stride);
      ahead.bytes = 0;
    }
  });
  for (const AttentionGroup& group : groups) end_group(args, stride, group);
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
