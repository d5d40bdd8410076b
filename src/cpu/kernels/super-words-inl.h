#pragma once

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/super-inl.h"

// Included only by sets that define DLLM_WORD_PRODUCTS (AVX2, which has no dot product of bytes); see kernels-inl.h.
//
// The arithmetic `super` in products of 16 bits: VPMADDWD adds two products of w8 and the whole q, of 15 bits, and
// VPADDD adds the sums to others: two instructions for 16 products. Bytes, in two planes of q, would take six
// instructions for 16 products: VPMADDUBSW saturates unless one of its operands has 7 bits, so that full bytes need two
// of it, each followed by VPMADDWD.
//
// Words are made from bytes without a shuffle: of the four k of a quad, a shift by 8 to the left and then to the right
// leaves k = 0 and 2, a shift to the right k = 1 and 3. Both operands are stored in these pairs.
//
// L1 holds a panel's super-block of weights (16 KiB) while all units of 8 rows (8 KiB) pass: with groups of 16 rows, or
// with panels in the inner loop, operands came from L2 (Zen 4, Q4_0, 128 rows: 119 instead of 147 GOP/s). Registers: 4
// x 2 sums, 2 weights, 1 broadcast, 2 products.

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr std::int64_t kWordUnit = 8, kWordRows = 128;
/// Panels for which rows are converted once: in instructions it costs a sixth of one panel's products.
constexpr std::int64_t kWordPanels = 16;

struct WordScratch {
  std::uint8_t tiles[kPanel * kSuperK];       ///< [k / 64][16 outputs][64 k]: w8
  std::uint32_t quads[kPanel * kSuperK / 4];  ///< [k / 4][16 outputs][4 k]: w8
  std::int16_t weights[kPanel * kSuperK];     ///< [k / 4][0 and 2, 1 and 3][16 outputs][2 k]
  /// [unit][k / 4][0 and 2, 1 and 3][8 rows][2 k]: q, of whole groups, the first and the last of which may overlap in
  /// part
  std::int16_t rows[(kWordRows + kSuperRows) * kSuperK];
};
static_assert(sizeof(WordScratch) <= kLinearScratchBytes);

/// The bytes 0 and 2 of each quad, times 2^kShift.
template <int kShift>
inline __m256i even_words(__m256i quads) {
  return _mm256_srai_epi16(_mm256_slli_epi16(quads, 8), 8 - kShift);
}
/// The bytes 1 and 3.
template <int kShift>
inline __m256i odd_words(__m256i quads) {
  if constexpr (kShift == 0) return _mm256_srai_epi16(quads, 8);
  return _mm256_srai_epi16(_mm256_and_si256(quads, _mm256_set1_epi16(static_cast<short>(0xff00))), 8 - kShift);
}

void super_weight_words(const std::uint8_t* tiles, std::int64_t kc, std::uint32_t* quads, std::int16_t* words) {
  for (std::int64_t k = 0; k < kc; k += 64)
    transpose16(reinterpret_cast<const std::uint32_t*>(tiles + k * kPanel), 16, quads + k * kPanel / 4);
  for (std::int64_t quad = 0; quad < kc / 4; ++quad, quads += kPanel, words += 4 * kPanel)
    for (int half = 0; half < 2; ++half) {
      const __m256i bytes = load_int(quads + 8 * half);
      store_int(words + 16 * half, even_words<0>(bytes));
      store_int(words + 32 + 16 * half, odd_words<0>(bytes));
    }
}

/// A group of 16 rows: two units.
void super_row_words(const std::int8_t* high, const std::int8_t* low, std::int64_t kc, std::int16_t* words) {
  for (std::int64_t quad = 0; quad < kc / 4; ++quad, high += 64, low += 64, words += 4 * kWordUnit)
    for (int half = 0; half < 2; ++half) {
      const __m256i h = load_int(high + 32 * half), l = load_int(low + 32 * half);
      std::int16_t* const to = words + half * kWordUnit * kSuperK;
      store_int(to, _mm256_add_epi16(even_words<7>(h), even_words<0>(l)));
      store_int(to + 2 * kWordUnit, _mm256_add_epi16(odd_words<7>(h), odd_words<0>(l)));
    }
}

/// A super-block of a panel times kRows rows of a unit.
template <int kRows>
[[gnu::noinline]] void word_tile(const std::int16_t* weights, const std::int16_t* rows, std::int64_t kc,
                                 const float* weight_scales, const float* row_scales, F32* total) {
  __m256i sum[kRows][2];
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m) sum[m][0] = sum[m][1] = _mm256_setzero_si256();
  for (std::int64_t quad = 0; quad < kc / 4; ++quad, weights += 4 * kPanel, rows += 4 * kWordUnit)
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; ++pair) {
      const __m256i w0 = load_int(weights + 32 * pair), w1 = load_int(weights + 32 * pair + 16);
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) {
        std::int32_t two;
        __builtin_memcpy(&two, rows + 2 * kWordUnit * pair + 2 * m, 4);
        const __m256i x = _mm256_set1_epi32(two);
        sum[m][0] = settled(_mm256_add_epi32(sum[m][0], _mm256_madd_epi16(w0, x)));
        sum[m][1] = settled(_mm256_add_epi32(sum[m][1], _mm256_madd_epi16(w1, x)));
      }
    }
  const F32 scale = load(weight_scales);
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m)
    total[m] = fma(to_f32(I32{sum[m][0], sum[m][1]}), mul(scale, set1(row_scales[m])), total[m]);
}

template <int kRows>
void word_tile_of(int rows, const std::int16_t* weights, const std::int16_t* words, std::int64_t kc,
                  const float* weight_scales, const float* row_scales, F32* total) {
  if (rows == kRows) return word_tile<kRows>(weights, words, kc, weight_scales, row_scales, total);
  if constexpr (kRows > 1) word_tile_of<kRows - 1>(rows, weights, words, kc, weight_scales, row_scales, total);
}

/// Outputs [n, n_end), at most kWordPanels panels, of rows [begin, end), at most kWordRows.
void word_chunk(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, std::int64_t begin, std::int64_t end,
                WordScratch& own) {
  const SuperLayout& layout = *args.panels.super;
  const SuperRows& x = args.super_rows;
  const std::int64_t origin = begin / kSuperRows * kSuperRows;
  const std::uint8_t* block = args.panels.data + n_begin / kPanel * layout.bytes;
  for (std::int64_t s = 0; s < super_blocks(args.k); ++s) {
    const std::int64_t kc = super_block_k(args.k, s), size = layout.block_bytes(kc);
    for (std::int64_t row = origin; row < end; row += kSuperRows)
      super_row_words(x.plane(args.k, row / kSuperRows, s, 0), x.plane(args.k, row / kSuperRows, s, 1), kc,
                      own.rows + (row - origin) * kSuperK);
    for (std::int64_t n = n_begin; n < n_end; n += kPanel) {
      const std::uint8_t* const at = block + (n - n_begin) / kPanel * layout.bytes;
      super_weight_words(super_tiles(layout, at, kc, own.tiles), kc, own.quads, own.weights);
      const auto tile = [&](std::int64_t row, int count, F32* total) {
        const std::int64_t unit = (row - origin) / kWordUnit, lane = row % kWordUnit;
        word_tile_of<kSuperTile>(count, own.weights, own.rows + unit * kWordUnit * kSuperK + 2 * lane, kc,
                                 reinterpret_cast<const float*>(at + size - 64),
                                 x.scale(args.k, row / kSuperRows, s) + row % kSuperRows, total);
      };
      for_each_super_tile(args, s, begin, end, n, static_cast<int>(n_end - n < kPanel ? n_end - n : kPanel), tile);
    }
    block += size;
  }
}

void super_linear(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  const std::int64_t first = args.super_rows.first_row, last = first + args.rows, outputs = kWordPanels * kPanel;
  for (std::int64_t row = first; row < last; row += kWordRows)
    for (std::int64_t n = n_begin; n < n_end; n += outputs)
      word_chunk(args, n, n_end - n < outputs ? n_end : n + outputs, row,
                 last - row < kWordRows ? last : row + kWordRows, *static_cast<WordScratch*>(scratch));
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
