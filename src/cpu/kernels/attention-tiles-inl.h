#pragma once

#include "cpu/kernels/attention-bf16-inl.h"
#include "cpu/kernels/float-tiles-inl.h"
#include "cpu/kernels/kernel_set.h"

// Compiled once for each kind of matrix tile (AMX, its emulation).
//
// Attention in the arithmetic `bf16` on matrix tiles (AMX-BF16, or tile_emulation.h). A lane is a query while scores
// become weights, as in the other forms:
//
//   scores   [16 keys][16 queries] = K [16 keys][32 dims] x queries [16 pairs of dims][16 queries][2]
//   outputs  [16 queries][16 dims] = weights [16 queries][32 keys] x V [16 pairs of keys][16 dims][2]
//
// So K stays as the cache has it, two rows of V are interleaved, and weights are transposed in registers: 8 shuffles
// per query and tile of keys, where transposing V would be 1024 of head_dim 128 per tile of keys. Tiles are used as in
// float-tiles-inl.h: 0 to 3 sums, 4 and 5 left operands, 6 and 7 right ones.

namespace dllm::cpu::DLLM_ISA {
namespace {

struct TileForm {
  static constexpr int kVectors = 2;
  static constexpr std::int64_t kPairs = kBf16Step / 2;

  explicit TileForm(const AttentionScratch& scratch)
      : k(scratch.k),
        v(scratch.v),
        pairs(scratch.k + kKeyTile * scratch.stride / 2),
        weights(pairs + kKeyTile / 2 * 16),
        sums(scratch.v + kKeyTile * scratch.stride / 2),
        floats(sums + 4 * kTileWords),
        words(reinterpret_cast<std::uint16_t*>(floats + scratch.stride)) {}

  static float& output(const AttentionGroup& group, std::int64_t stride, int query, std::int64_t d) {
    return group.out[query * stride + d];
  }

  /// Pairs of a step of queries take the place of its first half.
  static void arrange_queries(const AttentionArgs& args, std::int64_t stride, const AttentionGroup& group) {
    round_queries(args, stride, group);
    for (int i = 0; 16 * i < group.queries; ++i) {
      float* const plane = group.q + i * stride * 16;
      for (std::int64_t pair = 0; pair < padded_dim(args) / 2; ++pair)
        store(plane + pair * 16, pair_of(load(plane + (2 * pair + 1) * 16), load(plane + 2 * pair * 16)));
    }
  }

  /// A row of the cache as BF16, not yet limited, zero-padded to whole steps: in the cache itself, or in one of two
  /// places in scratch memory.
  const std::uint16_t* row(const AttentionArgs& args, const std::byte* from, int place) const {
    if (args.type == TensorType::kBF16 && args.head_dim % kBf16Step == 0)
      return reinterpret_cast<const std::uint16_t*>(from);
    widen_padded(args, from, floats);
    const std::int64_t padded = padded_dim(args);
    std::uint16_t* const out = words + place * padded;
    for (std::int64_t d = 0; d < padded; d += 16)
      store_words(out + d, shift_right<16>(round_to_bf16(load(floats + d))));
    return out;
  }

  /// Of magnitudes, doubled: whether all are zero or in [2^-55, 2^54].
  struct Range {
    std::uint16_t most = 0, least = 0xffff;
    void add(std::uint16_t word) {
      const auto twice = static_cast<std::uint16_t>(2u * word);
      const auto below = static_cast<std::uint16_t>(twice - 1u);  // zero becomes the largest
      most = twice > most ? twice : most;
      least = below < least ? below : least;
    }
    bool regular() const { return most <= 2 * 0x5a80 && least >= 2 * 0x2400 - 1; }
  };

  void arrange_keys(const AttentionArgs& args, const KeyTile& tile, std::int64_t stride) const {
    const std::int64_t padded = padded_dim(args);
    Range range;
    for (int j = 0; j < tile.count; ++j) {
      const std::uint16_t* const from = row(args, key_row(args, tile, j), 0);
      auto* const to = reinterpret_cast<std::uint16_t*>(k + j * (stride / 2));
      for (std::int64_t d = 0; d < padded; ++d) range.add(to[d] = from[d]);
    }
    for (std::int64_t j = tile.count; j % 16 != 0; ++j)
      for (std::int64_t d = 0; d < padded / 2; d += 16) store(k + j * (stride / 2) + d, set1(0.f));
    if (range.regular()) return;
    for (int j = 0; j < tile.count; ++j) limit_words(k + j * (stride / 2), padded / 2, 0x7fc0);
  }

  /// Whether a value is not finite.
  bool arrange_values(const AttentionArgs& args, const KeyTile& tile, std::int64_t stride) const {
    const std::int64_t padded = padded_dim(args);
    const std::uint16_t* const none = words + padded;
    Range range;
    for (int j = 0; j < tile.count; j += 2) {
      const std::uint16_t* const low = row(args, value_row(args, tile, j), 0);
      if (j + 1 == tile.count)
        for (std::int64_t d = 0; d < padded; d += 16) store_words(words + padded + d, set1(std::int32_t{0}));
      const std::uint16_t* const high = j + 1 < tile.count ? row(args, value_row(args, tile, j + 1), 1) : none;
      auto* const to = reinterpret_cast<std::uint16_t*>(v + j / 2 * stride);
      for (std::int64_t d = 0; d < padded; ++d) {
        range.add(to[2 * d] = low[d]);
        range.add(to[2 * d + 1] = high[d]);
      }
    }
    std::int64_t pair = (tile.count + 1) / 2;
    for (; pair % kPairs != 0; ++pair)
      for (std::int64_t d = 0; d < padded; d += 16) store(v + pair * stride + d, set1(0.f));
    if (range.regular()) return false;
    bool missing = false;
    for (std::int64_t i = 0; i < pair; ++i) missing = limit_words(v + i * stride, padded, 0) || missing;
    return missing;
  }

  /// The left and right operands of sums of kLeft x kRight tiles: the first of each, how far the second is, and what a
  /// step is, in floats; rows are left_row and right_row bytes apart.
  struct Operands {
    const float* left;
    std::int64_t next_left, left_step, left_row;
    const float* right;
    std::int64_t next_right, right_step, right_row;
  };
  template <int kLeft, int kRight>
  static void multiply(const Operands& o, std::int64_t steps) {
    tile_barrier();
    _tile_zero(0);
    if constexpr (kRight == 2) _tile_zero(1);
    if constexpr (kLeft == 2) _tile_zero(2);
    if constexpr (kLeft == 2 && kRight == 2) _tile_zero(3);
    for (std::int64_t step = 0; step < steps; ++step) {
      const float *const left = o.left + step * o.left_step, *const right = o.right + step * o.right_step;
      _tile_loadd(6, right, o.right_row);
      _tile_loadd(4, left, o.left_row);
      if constexpr (kRight == 2) _tile_loadd(7, right + o.next_right, o.right_row);
      if constexpr (kLeft == 2) _tile_loadd(5, left + o.next_left, o.left_row);
      multiply_tiles<kLeft, kRight>();
    }
  }
  template <int kLeft, int kRight>
  static void store_sums(float* out, std::int64_t next_left, std::int64_t next_right, std::int64_t row_bytes) {
    _tile_stored(0, out, row_bytes);
    if constexpr (kRight == 2) _tile_stored(1, out + next_right, row_bytes);
    if constexpr (kLeft == 2) _tile_stored(2, out + next_left, row_bytes);
    if constexpr (kLeft == 2 && kRight == 2) _tile_stored(3, out + next_left + next_right, row_bytes);
    tile_barrier();
  }

  /// Scores of kTiles tiles of 16 keys from slot j on.
  template <int kTiles, int kVectorCount>
  void score(const AttentionGroup& group, const KeyTile& tile, int j, std::int64_t head_dim,
             std::int64_t stride) const {
    multiply<kTiles, kVectorCount>(
        {k + j * (stride / 2), 16 * (stride / 2), kPairs, stride * 2, group.q, stride * 16, kTileWords, 64},
        (head_dim + kBf16Step - 1) / kBf16Step);
    store_sums<kTiles, kVectorCount>(tile.scores + j * kVectorCount * 16, 16 * kVectorCount * 16, 16,
                                     kVectorCount * 64);
  }

  /// Adds to kTiles tiles of 16 dimensions from d on.
  template <int kVectorCount, int kTiles>
  void mix(const AttentionGroup& group, const float* factors, std::int64_t d, std::int64_t steps,
           std::int64_t stride) const {
    multiply<kVectorCount, kTiles>({weights, 2 * kTileWords, kTileWords, 64, v + d, 16, kPairs * stride, stride * 4},
                                   steps);
    store_sums<kVectorCount, kTiles>(sums, 2 * kTileWords, kTileWords, 64);
    for (int i = 0; i < 16 * kVectorCount; ++i)
      for (int t = 0; t < kTiles; ++t) {
        float* const out = group.out + i * stride + d + 16 * t;
        store(out, fma(load(out), set1(factors[i]), load(sums + (i / 16 * 2 + t) * kTileWords + i % 16 * 16)));
      }
  }

  static void fetch(const std::byte* rows, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(rows + i, 0, 2);
  }

  template <int kVectorCount, int kStride, bool kMasked>
  void attend(const AttentionGroup& group, const KeyTile& tile, const Ahead& ahead, std::int64_t head_dim,
              std::int64_t runtime_stride) const {
    const std::int64_t stride = kStride > 0 ? kStride : runtime_stride;
    int j = 0;
    for (; j + 16 < tile.count; j += 32) score<2, kVectorCount>(group, tile, j, head_dim, stride);
    if (j < tile.count) score<1, kVectorCount>(group, tile, j, head_dim, stride);
    fetch(ahead.k, ahead.bytes);
    const std::int64_t steps = (tile.count + kBf16Step - 1) / kBf16Step;
    float factors[16 * kVectorCount];
    for (int i = 0; i < kVectorCount; ++i) {
      const F32 factor = weigh_rounded<kVectorCount, kMasked>(group, tile, i, [&](int slot, const F32(&w)[4]) {
        store(pairs + slot / 2 * 16, pair_of(w[1], w[0]));
        store(pairs + (slot / 2 + 1) * 16, pair_of(w[3], w[2]));
      });
      store(factors + 16 * i, factor);
      for (std::int64_t step = 0; step < steps; ++step)
        transpose16(reinterpret_cast<const std::uint32_t*>(pairs + step * kTileWords), 16,
                    reinterpret_cast<std::uint32_t*>(weights + (2 * i + step) * kTileWords));
    }
    fetch(ahead.v, ahead.bytes);
    std::int64_t d = 0;
    for (; d + 16 < head_dim; d += 32) mix<kVectorCount, 2>(group, factors, d, steps, stride);
    if (d < head_dim) mix<kVectorCount, 1>(group, factors, d, steps, stride);
  }

  static void finish(const AttentionArgs& args, std::int64_t stride, const AttentionGroup& group) {
    for (int i = 0; i < group.queries; ++i) {
      const float sum = group.sum[i];
      const F32 inverse = set1(sum == 0.f ? 0.f : 1.f / sum);  // nothing visible: zeros
      const std::int64_t index = group.first + i;
      float* const out = args.out + index / args.group * args.row_stride + index % args.group * args.head_dim;
      for (std::int64_t d = 0; d < args.head_dim; d += 16)
        store_n(out + d, mul(add(load(group.out + i * stride + d), set1(0.f)), inverse), count_of(d, args.head_dim));
    }
  }

  float *k, *v;
  float *pairs, *weights;  ///< of a vector of queries [32 pairs of keys][16]; [vector][step][16 queries][32 keys]
  float *sums, *floats;
  std::uint16_t* words;
};

void tile_attention(const AttentionArgs& args) {
  _tile_loadconfig(&kTileConfig);
  if (args.head_dim <= kAttentionStride)
    attend_bf16<TileForm, kAttentionStride>(args);
  else
    attend_bf16<TileForm, 0>(args);
  _tile_release();
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
