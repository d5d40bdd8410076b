#pragma once

#include "cpu/kernels/bf16-inl.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/packed-inl.h"

// Products with packed F32, F16 and BF16 weights (packed.h): R rows of x times P panels in registers; weights are
// widened when they are loaded.
//
// Tile. A step of k costs R x P FMA vectors, P loads of weights and R broadcasts. AVX-512: 12 rows x 2 panels use 24
// accumulators, 2 weights, a broadcast and a mask of the 32 registers; 14 loads per 24 FMA on two load ports and two
// FMA ports, so loads take 58 % of the time of the FMA. AVX2: a panel is two registers, and 6 x 1 use 12 accumulators,
// 2 weights and a broadcast of 16; 8 loads per 12 FMA. NEON: a panel is four, and 6 x 1 use 24 accumulators, 4 weights
// and a broadcast of 32. All have 12 chains or more; two FMA ports of latency 4 need 8.
//
// Blocks. 256 k of the panels of a tile are 32 KiB of F32 or 16 KiB of F16, and 12 rows of x 12 KiB: both stay in an L1
// of 48 KiB for all tiles of rows (AVX2, 32 KiB: 16 + 6). Between blocks sums are kept in `out`: 48 loads and stores
// per 6144 FMA. A block of 16-bit weights that more tiles will read is first widened to floats (AVX-512: conversions
// share the ports of FMA; AVX2: the mask of BF16 is one register too many). x comes from L2, one tile after the other;
// if it is larger than L2, several pairs of panels share each of its blocks.
//
// Order of summation: over k ascending, one fma per product and one accumulator per output, as everywhere. With BF16
// weights rows are rounded to BF16, and of each pair of k the odd one comes first: this is what VDPBF16PS does
// (RowForm), at twice the rate of FMA, with the same tile of 12 x 2 and a block of 512 k.

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr std::int64_t kFloatTileBlock = 256;  ///< of floats; twice as many BF16 pairs take the same space
constexpr int kFloatTileRows = kFloatGroups * static_cast<int>(kRowGroup);
constexpr std::int64_t kSharePanels = 8;  ///< number that share a block of x
/// Tiles of rows from which on a block is widened first: measured, see research/lab/performance.md.
constexpr std::int64_t kWidenTiles = kFloatPanels > 1 ? 4 : 3;
static_assert(kFloatPanels * kFloatTileBlock * kPanel * 4 <= std::int64_t{kLinearScratchBytes});

template <class A, class B>
constexpr bool same_type = false;
template <class A>
constexpr bool same_type<A, A> = true;

/// Weights of one panel at k (even) and k + 1; kPairBytes lead to k + 2.
struct F32Weights {
  static constexpr std::int64_t kPairBytes = 2 * kPanel * 4, kBlock = kFloatTileBlock;
  static constexpr std::int64_t kRowPair = 2 * kRowGroup;  ///< floats of a group of rows for a pair of k
  static constexpr bool kOddFirst = false;
  template <int kOdd>
  static F32 at(const std::uint8_t* p) {
    return load(reinterpret_cast<const float*>(p) + kOdd * kPanel);
  }
};
struct F16Weights {
  static constexpr std::int64_t kPairBytes = 2 * kPanel * 2, kBlock = kFloatTileBlock, kRowPair = 2 * kRowGroup;
  static constexpr bool kOddFirst = false;
  using Wide = F32Weights;
  template <int kOdd>
  static F32 at(const std::uint8_t* p) {
    return load_half(reinterpret_cast<const std::uint16_t*>(p) + kOdd * kPanel);
  }
};
struct WideBF16Weights : F32Weights {
  static constexpr bool kOddFirst = true;
};
struct BF16Weights {
  static constexpr std::int64_t kPairBytes = 2 * kPanel * 2, kBlock = kFloatTileBlock, kRowPair = 2 * kRowGroup;
  static constexpr bool kOddFirst = true;
  using Wide = WideBF16Weights;
  template <int kOdd>
  static F32 at(const std::uint8_t* p) {
    const I32 words = as_i32(load(reinterpret_cast<const float*>(p)));
    if constexpr (kOdd == 0) return as_f32(shift_left<16>(words));
    return as_f32(bit_and(words, set1(std::int32_t{-0x10000})));
  }
};

#ifdef DLLM_BF16_DOTS
/// For rows in pairs.
struct BF16Dots {
  static constexpr std::int64_t kPairBytes = 2 * kPanel * 2, kBlock = 2 * kFloatTileBlock, kRowPair = kRowGroup;
  static F32 at(const std::uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
};
#endif

/// A block of K of the panels of a tile, and where its products go.
struct FloatBlock {
  const std::uint8_t* weights = nullptr;
  std::int64_t panel_bytes = 0;  ///< from a panel to the next
  std::int64_t kc = 0;
  std::int64_t group_stride = 0;
  float* out = nullptr;  ///< of the first panel, row 0 of the product
  std::int64_t out_stride = 0;
  int columns = 0;  ///< of the last panel
  bool first = false;
  const float* bias = nullptr;             ///< of the first panel; set for the last block
  const std::uint8_t* prefetch = nullptr;  ///< of the first panel: data for later
  std::int64_t prefetch_stride = 0;        ///< to that of the second
  std::int64_t prefetch_lines = 0;         ///< per panel and 16 k
};

/// One step of k: kOdd selects the half of the pair.
template <class Weights, int kRows, int kPanels, int kOdd>
inline void float_step(const std::uint8_t* w, std::int64_t panel_bytes, const float* x, std::int64_t group_stride,
                       F32 (&sum)[kRows][kPanels]) {
  F32 weights[kPanels];
#pragma GCC unroll 2
  for (int p = 0; p < kPanels; ++p) weights[p] = Weights::template at<kOdd>(w + p * panel_bytes);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const F32 value = set1(x[r / kRowGroup * group_stride + r % kRowGroup + kOdd * kRowGroup]);
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) sum[r][p] = fma(value, weights[p], sum[r][p]);
  }
}

/// Rows [row, row + kRows) of the product, except the first `skip`, which belong to another task.
/// A pair of k.
template <class Weights, int kRows, int kPanels>
inline void float_pair(const std::uint8_t* w, std::int64_t panel_bytes, const float* x, std::int64_t group_stride,
                       F32 (&sum)[kRows][kPanels]) {
#ifdef DLLM_BF16_DOTS
  if constexpr (same_type<Weights, BF16Dots>) {
    F32 weights[kPanels];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) weights[p] = Weights::at(w + p * panel_bytes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32 value = set1(x[r / kRowGroup * group_stride + r % kRowGroup]);
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) sum[r][p] = dot_bf16(sum[r][p], weights[p], value);
    }
    return;
  } else
#endif
  {
    constexpr int kFirst = Weights::kOddFirst ? 1 : 0;
    float_step<Weights, kRows, kPanels, kFirst>(w, panel_bytes, x, group_stride, sum);
    float_step<Weights, kRows, kPanels, 1 - kFirst>(w, panel_bytes, x, group_stride, sum);
  }
}

/// Not inlined: together with the other instances GCC would spill, and compile for minutes.
template <class Weights, int kRows, int kPanels>
[[gnu::noinline]] void packed_float_tile(const FloatBlock& block, const float* x, std::int64_t row, std::int64_t skip) {
  F32 sum[kRows][kPanels];
  const auto columns = [&](int p) { return p == kPanels - 1 ? block.columns : static_cast<int>(kPanel); };
  float* const out = block.out + row * block.out_stride;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p)
      sum[r][p] = block.first || r < skip ? set1(0.f) : load_n(out + r * block.out_stride + p * kPanel, columns(p));
  // Rows of 4096 outputs share their cache sets: without prefetching, the next tile's sums would miss.
  if (!block.first)
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) __builtin_prefetch(out + (kRows + r) * block.out_stride + p * kPanel, 1, 2);
  const std::uint8_t* w = block.weights;
  const std::uint8_t* prefetch = block.prefetch;
  const std::int64_t panel_bytes = block.panel_bytes, group_stride = block.group_stride;
  std::int64_t left = block.kc;
  while (left > 1) {
    for (std::int64_t i = 0; i < block.prefetch_lines; ++i, prefetch += 64)
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) __builtin_prefetch(prefetch + p * block.prefetch_stride, 0, 2);
    const std::int64_t pairs = left < 16 ? left / 2 : 8;
    for (std::int64_t i = 0; i < pairs; ++i, w += Weights::kPairBytes, x += Weights::kRowPair)
      float_pair<Weights, kRows, kPanels>(w, panel_bytes, x, group_stride, sum);
    left -= 2 * pairs;
  }
  if constexpr (Weights::kRowPair == 2 * kRowGroup)
    if (left == 1) float_step<Weights, kRows, kPanels, 0>(w, panel_bytes, x, group_stride, sum);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    if (r < skip) continue;
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      float* const to = out + r * block.out_stride + p * kPanel;
      const int n = columns(p);
      if (block.bias != nullptr) sum[r][p] = add(sum[r][p], load_n(block.bias + p * kPanel, n));
      if (n == kPanel) {
        store(to, sum[r][p]);
      } else {
        store_n(to, sum[r][p], n);
      }
    }
  }
}

template <class Weights, int kPanels, int kRows = kFloatTileRows>
inline void packed_float_tile_of(int rows, const FloatBlock& block, const float* x, std::int64_t row,
                                 std::int64_t skip) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return packed_float_tile<Weights, kRows, kPanels>(block, x, row, skip);
    packed_float_tile_of<Weights, kPanels, kRows - 1>(rows, block, x, row, skip);
  }
}

/// Tiles of rows, counted from the beginning of the first one's group.
inline std::int64_t float_tiles(const LinearArgs& args) {
  return (args.grouped.first_row % kRowGroup + args.rows + kFloatTileRows - 1) / kFloatTileRows;
}

/// Every row over a block. With an odd number of groups the first is processed alone: the last may have few rows, and a
/// tile needs enough accumulators to hide the latency of FMA.
template <class Weights, int kPanels>
void float_rows(const LinearArgs& args, FloatBlock block, std::int64_t k0) {
  const std::int64_t begin = args.grouped.first_row / kRowGroup, end = args.grouped.first_row + args.rows;
  const std::int64_t groups = (end + kRowGroup - 1) / kRowGroup - begin;
  const std::int64_t tiles = float_tiles(args), chunks = (block.kc + 15) / 16;
  if (block.prefetch != nullptr) block.prefetch_lines = (block.prefetch_lines + tiles * chunks - 1) / (tiles * chunks);
  std::int64_t height = kFloatGroups - (tiles * kFloatGroups - groups);
  for (std::int64_t g = begin; g < begin + groups; g += height, height = kFloatGroups) {
    if (g > begin && block.prefetch != nullptr) block.prefetch += block.prefetch_lines * chunks * 64;
    const std::int64_t row = g * kRowGroup;
    const std::int64_t rows = end - row < height * kRowGroup ? end - row : height * kRowGroup;
    packed_float_tile_of<Weights, kPanels>(
        static_cast<int>(rows), block, args.grouped.groups + g * block.group_stride + k0 / 2 * Weights::kRowPair,
        row - args.grouped.first_row, args.grouped.first_row > row ? args.grouped.first_row - row : 0);
  }
}

/// A block of one panel as F32Weights.
template <class Weights>
void widen_block(const std::uint8_t* w, std::int64_t kc, float* out) {
  for (; kc > 1; kc -= 2, w += Weights::kPairBytes, out += 2 * kPanel) {
    store(out, Weights::template at<0>(w));
    store(out + kPanel, Weights::template at<1>(w));
  }
  if (kc == 1) store(out, Weights::template at<0>(w));
}

template <class Weights>
constexpr bool widens = same_type<Weights, F16Weights> || same_type<Weights, BF16Weights>;

template <class Weights, int kPanels>
void float_block(const LinearArgs& args, FloatBlock block, std::int64_t k0, float* scratch) {
  block.prefetch_lines = block.kc * Weights::kPairBytes / 2 / 64;
  if constexpr (widens<Weights>)
    if (float_tiles(args) >= kWidenTiles) {
      for (int p = 0; p < kPanels; ++p)
        widen_block<Weights>(block.weights + p * block.panel_bytes, block.kc, scratch + p * kFloatTileBlock * kPanel);
      block.weights = reinterpret_cast<const std::uint8_t*>(scratch);
      block.panel_bytes = kFloatTileBlock * kPanel * 4;
      return float_rows<typename Weights::Wide, kPanels>(args, block, k0);
    }
  float_rows<Weights, kPanels>(args, block, k0);
}

template <class Weights>
void packed_floats_of(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, float* scratch) {
  constexpr std::int64_t kWidth = kFloatPanels * kPanel;
  const std::int64_t panel_bytes = args.panels.layout->bytes;
  FloatBlock block;
  block.panel_bytes = block.prefetch_stride = panel_bytes, block.group_stride = row_group_stride(args.k),
  block.out_stride = args.out_stride;
  for (std::int64_t share = n_begin; share < n_end; share += kSharePanels * kPanel) {
    const std::int64_t share_end = n_end - share < kSharePanels * kPanel ? n_end : share + kSharePanels * kPanel;
    for (std::int64_t k0 = 0; k0 < args.k; k0 += Weights::kBlock) {
      block.kc = args.k - k0 < Weights::kBlock ? args.k - k0 : Weights::kBlock;
      block.first = k0 == 0;
      const bool last = k0 + block.kc == args.k;
      for (std::int64_t n = share; n < share_end; n += kWidth) {
        const std::uint8_t* panel = args.panels.data + n / kPanel * panel_bytes;
        const std::int64_t offset = k0 / 2 * Weights::kPairBytes;
        block.weights = panel + offset;
        block.out = args.out + (n - args.out_origin);
        block.bias = last && args.bias != nullptr ? args.bias + n : nullptr;
        // The data that follow: the next panels of this block, the next block of the first panels, the next share.
        std::int64_t next = n + kWidth, next_offset = offset;
        if (next >= share_end && !last) next = share, next_offset = offset + block.kc / 2 * Weights::kPairBytes;
        if (next >= share_end) next_offset = 0;
        block.prefetch = next + kWidth <= args.n ? args.panels.data + next / kPanel * panel_bytes + next_offset
                         : last                  ? args.follow
                                                 : nullptr;
        const std::int64_t left = n_end - n;
        block.columns = static_cast<int>(left >= kWidth ? kPanel : (left - 1) % kPanel + 1);
        if (kFloatPanels > 1 && left <= kPanel) {
          float_block<Weights, 1>(args, block, k0, scratch);
        } else {
          float_block<Weights, kFloatPanels>(args, block, k0, scratch);
        }
      }
    }
  }
}

/// Outputs [n_begin, n_end) of a product with packed floats.
void packed_floats(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  auto* const floats = static_cast<float*>(scratch);
  switch (args.panels.format->type) {
    case TensorType::kF32:
      return packed_floats_of<F32Weights>(args, n_begin, n_end, floats);
    case TensorType::kF16:
      return packed_floats_of<F16Weights>(args, n_begin, n_end, floats);
    default:
#ifdef DLLM_BF16_DOTS
      if (args.grouped.form == RowForm::kPairs) return packed_floats_of<BF16Dots>(args, n_begin, n_end, floats);
#endif
      return packed_floats_of<BF16Weights>(args, n_begin, n_end, floats);
  }
}

/// 16 words of each of six rows, 16 apart, to [16][6]. Each store writes 16 numbers, ten of which the next stores
/// overwrite.
inline void interleave_words(const std::uint32_t* rows, float* out) {
  alignas(64) std::uint32_t columns[16 * 16];
  transpose16(rows, 16, columns);
  for (int j = 0; j < 16; ++j) __builtin_memcpy(out + j * kRowGroup, columns + 16 * j, 64);
}

/// Rounds rows to BF16 on the way from x to the words that interleave_words() takes. Tracks the largest magnitude and
/// the reciprocal of the smallest that is not zero, as integers.
struct Rounding {
  static constexpr std::int32_t kLeast = (127 - 55) << 23, kMost = (127 + 55) << 23, kFar = 0x7fffffff;
  I32 largest = set1(std::int32_t{0}), smallest = set1(std::int32_t{0});

  I32 round(const float* x) {
    const I32 bits = bf16_of(load(x));
    const I32 magnitude = bit_and(bits, set1(kFar));
    const I32 nothing = set1(std::int32_t{0});
    largest = max(largest, magnitude);
    const F32 from_far = as_f32(sub(set1(kFar), magnitude));
    smallest = max(smallest, as_i32(select_greater(magnitude, nothing, from_far, as_f32(nothing))));
    return bits;
  }
  /// What rounding has taken away, rounded as well.
  static I32 rest(const float* x) {
    const F32 value = load(x);
    return bf16_of(sub(value, as_f32(bf16_of(value))));
  }
  bool regular() const { return reduce_max(largest) < kMost && reduce_max(smallest) <= kFar - kLeast; }
};

/// 16 k of kRounded, or 32 of kPairs, to `words`: their part 0 or 1 (RowForm::kSplit).
inline void round_words(RowForm form, int part, Rounding& rounding, const float* x, std::uint32_t* words) {
  const auto bits = [&](const float* from) { return part == 0 ? rounding.round(from) : Rounding::rest(from); };
  if (form == RowForm::kRounded) return store(reinterpret_cast<float*>(words), as_f32(bits(x)));
  std::uint16_t pairs[32];
  store_words(pairs, shift_right<16>(bits(x)));
  store_words(pairs + 16, shift_right<16>(bits(x + 16)));
  __builtin_memcpy(words, pairs, sizeof pairs);
}

/// kTiles, or kSplitTiles: of two parts.
bool tile_rows(int parts, const float* x, std::int64_t k, std::int64_t count, float* out) {
  Rounding rounding;
  for (std::int64_t i = 0; i < k; i += kBf16Step)
    for (int part = 0; part < parts; ++part)
      for (std::int64_t r = 0; r < kSuperRows; ++r, out += 16) {
        alignas(64) std::uint32_t words[16] = {};
        if (r < count) round_words(RowForm::kPairs, part, rounding, x + r * k + i, words);
        __builtin_memcpy(out, words, 64);
      }
  return rounding.regular();
}

bool interleave_part(RowForm form, int part, const float* x, std::int64_t k, std::int64_t count, float* out) {
  const std::int64_t step = form == RowForm::kPairs ? 32 : 16;
  alignas(64) std::uint32_t rows[16 * 16] = {};
  float tail[32] = {};
  Rounding rounding;
  for (std::int64_t i = 0; i < k; i += step, out += 16 * kRowGroup) {
    for (std::int64_t r = 0; r < count; ++r) {
      const float* from = x + r * k + i;
      if (k - i < step) {
        __builtin_memcpy(tail, from, static_cast<std::size_t>(k - i) * sizeof(float));
        from = tail;
      }
      if (form == RowForm::kFloats) {
        __builtin_memcpy(rows + 16 * r, from, 64);
      } else {
        round_words(form, part, rounding, from, rows + 16 * r);
      }
    }
    interleave_words(rows, out);
  }
  return rounding.regular();
}

bool interleave(RowForm form, const float* x, std::int64_t k, std::int64_t count, float* out) {
  if (in_tiles(form)) return tile_rows(in_parts(form) ? 2 : 1, x, k, count, out);
  if (form != RowForm::kSplit) return interleave_part(form, 0, x, k, count, out);
  interleave_part(RowForm::kRounded, 1, x, k, count, out + row_group_stride(k));
  return interleave_part(RowForm::kRounded, 0, x, k, count, out);
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
