#pragma once

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/packed-inl.h"
#include "cpu/kernels/panels-inl.h"

// Included only by neon_i8mm.cpp.
//
// Products of a panel by SMMLA (Armv8.6-A, I8MM), which multiplies two rows of 8 k by two outputs of 8 k: twice the
// products of an SDOT. Codes are decoded once per block to signed bytes u - z, [k / 8][8 pairs of outputs][2][8 k]; a
// pair of rows is put together as it is loaded. A sum holds two rows by two outputs, so four sums become rows of four
// outputs at the end of a group. The integers are those of panels-inl.h, and everything after them is the same.
//
// A tile is 6 rows by 16 outputs: 24 sums, 3 pairs of rows, and the codes of a pair of outputs, each used three times.
// A group of 32 k takes 96 SMMLA, 32 loads of codes, 24 of rows and 12 that join them, and 24 that split the sums;
// panels-inl.h takes 160 SDOT for five rows, which would be 192 for six.

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr int kMatrixRows = 6;   ///< of a tile
constexpr int kMatrixPairs = 8;  ///< pairs of outputs of a panel

/// Codes of a block, decoded: [quad][16 outputs][4 k], to pairs of outputs, less `zero`.
inline void pair_outputs(std::uint8_t* codes, std::int64_t kc, std::uint8_t zero) {
  const int8x16_t zeros = vreinterpretq_s8_u8(vdupq_n_u8(zero));
  for (std::int64_t k = 0; k < kc; k += 8, codes += 128) {
    int32x4_t even[4], odd[4];
    for (int i = 0; i < 4; ++i) {
      const int8x16_t low = vreinterpretq_s8_u8(vld1q_u8(codes + 16 * i));
      const int8x16_t high = vreinterpretq_s8_u8(vld1q_u8(codes + 64 + 16 * i));
      even[i] = vreinterpretq_s32_s8(vsubq_s8(low, zeros));
      odd[i] = vreinterpretq_s32_s8(vsubq_s8(high, zeros));
    }
    for (int i = 0; i < 4; ++i) {
      vst1q_u8(codes + 32 * i, vreinterpretq_u8_s32(vzip1q_s32(even[i], odd[i])));
      vst1q_u8(codes + 32 * i + 16, vreinterpretq_u8_s32(vzip2q_s32(even[i], odd[i])));
    }
  }
}

/// Row `half` of a pair, of the sums of eight pairs of outputs.
template <int kHalf>
inline I32 row_of_pairs(const int32x4_t (&sums)[kMatrixPairs]) {
  return map_int([&](int i) {
    const int64x2_t a = vreinterpretq_s64_s32(sums[2 * i]), b = vreinterpretq_s64_s32(sums[2 * i + 1]);
    return vreinterpretq_s32_s64(kHalf == 0 ? vzip1q_s64(a, b) : vzip2q_s64(a, b));
  });
}

/// total[kRows][16] += rows [row, row + kRows) of x times the block, whose codes are pairs of outputs.
template <Codes kCodes, bool kMin, int kRows>
[[gnu::noinline]] void matrix_tile(const LinearArgs& args, const PanelBlock& block, std::int64_t row, float* total) {
  constexpr int kHalves = scales_per_32(kCodes), kPairs = (kRows + 1) / 2;
  constexpr bool kHalfMin = kMin && kHalves == 2;
  const QuantizedRows& q = args.quantized;
  const std::int64_t groups = args.k / kScaleBlock, first = row * groups + block.k0 / kScaleBlock, stride = q.stride;
  const std::int8_t* x = q.values + row * stride + block.k0;
  const std::int32_t* corrections = q.corrections + first * kHalves;
  const float *scales = q.scales + first, *offsets = q.offsets + first, *scale = block.scale, *min = block.min;
  const std::uint8_t *codes = block.codes, *prefetch = block.prefetch;
  for (std::int64_t g = 0; g < block.kc / kScaleBlock; ++g) {
    for (std::int64_t i = 0; i < block.prefetch_per_group; ++i, prefetch += 64) __builtin_prefetch(prefetch, 0, 2);
    for (int half = 0; half < kHalves; ++half) {
      int32x4_t sums[kPairs][kMatrixPairs];
#pragma GCC unroll 3
      for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 8
        for (int n = 0; n < kMatrixPairs; ++n) sums[p][n] = vdupq_n_s32(0);
      // Not unrolled: there GCC 12 moves sums from register to register, and spills some.
#pragma GCC unroll 1
      for (int k = 0; k < kScaleBlock / kHalves; k += 8, codes += 128, x += 8) {
        int8x16_t rows[kPairs];
#pragma GCC unroll 3
        for (int p = 0; p < kPairs; ++p)  // a last row without a partner is its own
          rows[p] =
              vcombine_s8(vld1_s8(x + 2 * p * stride), vld1_s8(x + (2 * p + 1 < kRows ? 2 * p + 1 : 2 * p) * stride));
#pragma GCC unroll 8
        for (int n = 0; n < kMatrixPairs; ++n) {
          const int8x16_t outputs = vreinterpretq_s8_u8(vld1q_u8(codes + 16 * n));
#pragma GCC unroll 3
          for (int p = 0; p < kPairs; ++p) sums[p][n] = vmmlaq_s32(sums[p][n], rows[p], outputs);
        }
      }
      const F32 weights = load(scale + half * kPanel);
      const auto add_row = [&](int r, const I32& dot) {
        F32 to = fma(to_f32(dot), mul(weights, set1(scales[r * groups])), load(total + r * kPanel));
        if constexpr (kHalfMin)
          to = fma(load(min + half * kPanel), as_f32(set1(corrections[r * groups * kHalves + half])), to);
        if constexpr (kMin && !kHalfMin) to = fma(load(min), set1(offsets[r * groups]), to);
        store(total + r * kPanel, to);
      };
#pragma GCC unroll 3
      for (int p = 0; p < kPairs; ++p) {
        add_row(2 * p, row_of_pairs<0>(sums[p]));
        if (2 * p + 1 < kRows) add_row(2 * p + 1, row_of_pairs<1>(sums[p]));
      }
    }
    scale += kHalves * kPanel, corrections += kHalves, ++scales;
    if constexpr (kMin) min += kHalves * kPanel, ++offsets;
  }
}

template <Codes kCodes, bool kMin, int kRows = kMatrixRows>
inline void matrix_tile_of(std::int64_t rows, const LinearArgs& args, const PanelBlock& block, std::int64_t row,
                           float* total) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return matrix_tile<kCodes, kMin, kRows>(args, block, row, total);
    matrix_tile_of<kCodes, kMin, kRows - 1>(rows, args, block, row, total);
  }
}

/// All rows over one block.
template <Codes kCodes, bool kMin>
void matrix_rows(const LinearArgs& args, PanelBlock block, std::int64_t lines, const PanelOutput& output,
                 PanelScratch& scratch) {
  const std::int64_t tiles = (args.rows + kMatrixRows - 1) / kMatrixRows, groups = block.kc / kScaleBlock;
  block.prefetch_per_group = (lines + tiles * groups - 1) / (tiles * groups);
  decode_panel<kCodes>(block, scratch.codes);
  block.codes = scratch.codes;
  static_assert(!Dots<kSignedBytes>::kSigned, "panel_codes() would have IQ4's values without their zero point");
  pair_outputs(scratch.codes, block.kc, static_cast<std::uint8_t>(args.panels.format->zero));
  for (std::int64_t row = 0; row < args.rows; row += kMatrixRows) {
    const std::int64_t height = args.rows - row < kMatrixRows ? args.rows - row : kMatrixRows;
    panel_sums(args, block.k0 == 0, row, height, output, scratch,
               [&](float* total) { matrix_tile_of<kCodes, kMin>(height, args, block, row, total); });
    block.prefetch += block.prefetch_per_group * groups * 64;
  }
}

/// Outputs [n_begin, n_end) of a product with integer codes.
void matrix_linear(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, PanelScratch& scratch) {
  PanelRows* const rows = with_codes(*args.panels.format,
                                     []<Codes kCodes, bool kMin>() -> PanelRows* { return matrix_rows<kCodes, kMin>; });
  for (std::int64_t n = n_begin; n < n_end; n += kPanel)
    panel_product(args, n, static_cast<int>(n_end - n < kPanel ? n_end - n : kPanel), rows, scratch);
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
