#pragma once

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/packed-inl.h"

// Included only by sets that define DLLM_PAIR_TILES (512-bit VNNI); see kernels-inl.h.
//
// Pair tiles: R rows of x times two panels of packed weights; codes are decoded in registers, or (Decoding::kPerBlock)
// once per block of K, to bytes in scratch.
//
// Port usage (Zen 5; Zen 4 the same at half the rate): VPDPBUSD, multiplications and FMA share two ports; everything
// else (loads and broadcasts, and, shift, VCVTDQ2PS, integer addition) fits on the others. A group of 32 k costs per
// row and panel 8 VPDPBUSD, and then cvt(dot) * (s_w * s_x) + sum: one FMA, and one multiplication unless the product
// of the scales is available in another way. It is: s_x is 2^e times 1, 1.25, 1.5 or 1.75 (quantize_row), the first
// tile of rows tabulates the four multiples of s_w for the others, and 2^e is an integer addition to the exponent
// field. So the bound is 8/9 of the VPDPBUSD peak instead of 8/10. The table has exact products (11 to 18 bits times
// 3), so the result equals the multiplication bit for bit. A scale of zero, to whose bits nothing may be added, is
// tabulated as 1: the codes of its group are zero (packed.h). If there are only one or two tiles they multiply, since
// the table would cost more than it saves; so do formats of 6 and 8 bits, whose activations keep exact scales, those of
// 2 and 3 bits, with twice as many scales, and scales that nothing may be added to.
//
// Registers: 2R integer and 2R float accumulators, 2 codes, 1 broadcast, 1 to 3 constants: R = 6 fills the file.
// 12 chains of VPDPBUSD (latency 4, two a cycle) cover the latency; R = 8 with float accumulators in L1 measured 4 %
// slower, R = 4 with three panels 3 %. A block of 1024 k holds codes (16 KiB), table (16 KiB) and 6 rows of x (6 KiB)
// in L1 for all tiles of rows; codes of whole bytes have no table and take its place.
//
// Intel's processors execute every 512-bit instruction but loads and stores on those two ports. A group of 32 k of six
// rows of Q4_0 takes 96 VPDPBUSD, 36 instructions for scales and sums, with or without the table, and 24 to decode: at
// most 62 % of the VPDPBUSD peak. Decoded once for n tiles of rows: 96 / (134 + 24 / n), 70 % with six
// (research/lab/performance.md has the other formats). On Zen 4, where decoding is free and bytes take twice the room
// of nibbles in L1, that is up to 14 % slower instead, so the choice is measured on the processor (cpu/decoding.h).

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr std::int64_t kPairRows = 6;
constexpr std::int64_t kTable = 4 * kPanel;  ///< floats of one panel's group: [multiple][16]

/// How a tile obtains the product of two scales.
enum class PairScales {
  kMultiply,  ///< by multiplication
  kBuild,     ///< by exponents; also fills the table of multiples
  kTabled,    ///< by exponents, from the table
};

/// Formats whose scales the tiles convert from the panel's halves themselves; those of others are floats in scratch.
constexpr bool half_scales(Codes codes, bool has_min) {
  return !has_min && (codes == Codes::kNibble || codes == Codes::kNibble5 || codes == Codes::kByte);
}

/// Cache lines that the tiles of a block prefetch: a few per group, in memory order. Spreading them over the quads, or
/// alternating between the panels, measured 7 to 10 % slower at 8 rows, bursts of 16 groups 30 %.
struct Prefetch {
  const std::uint8_t* at = nullptr;
  std::int64_t lines = 0;  ///< 0: nothing follows

  /// The part that tile `t` of `tiles` fetches.
  Prefetch share(std::int64_t t, std::int64_t tiles) const {
    const std::int64_t begin = lines * t / tiles;
    return {at + 64 * begin, lines * (t + 1) / tiles - begin};
  }
};

/// One block of K of a pair of panels.
struct PairBlock {
  const std::uint8_t* codes[2];
  const std::uint8_t* high[2];
  const std::uint8_t* codes_table;  ///< of values, where codes are listed
  const std::uint8_t* half[2];      ///< [groups][16] halves, for formats with half_scales
  const float* scale[2];            ///< [groups][16], for the others
  float* table[2];                  ///< [groups][4][16]
  const float* min[2];              ///< [groups][16]
  std::uint8_t* decoded[2];         ///< [groups][512], for codes as bytes
  std::int64_t k0;
  std::int64_t kc;
  Prefetch prefetch;
};

/// Codes of quad `quad` of a group: byte i of each lane is k = 4 quad + i.
template <Codes kCodes>
inline __m512i pair_codes(const std::uint8_t* codes, const std::uint8_t* high, const std::uint8_t* table, int quad) {
  if constexpr (kCodes == Codes::kByte) return _mm512_loadu_si512(codes + 64 * quad);
  constexpr int kOr = 0xf8;  // a | (b & c)
  const auto look_up = [table](__m512i places) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), places);
  };
  if constexpr (in_pairs(kCodes)) {
    const __m512i pairs = _mm512_loadu_si512(codes + 64 * (quad / 4));
    const __m512i pair = _mm512_and_si512(
        quad % 4 == 0 ? pairs : _mm512_srli_epi16(pairs, static_cast<unsigned>(2 * (quad & 3))), _mm512_set1_epi8(3));
    if constexpr (kCodes == Codes::kTwoBits) return pair;
    const __m512i bits = _mm512_loadu_si512(high);
    const __m512i third = quad < 2   ? _mm512_slli_epi16(bits, static_cast<unsigned>(2 - quad))
                          : quad > 2 ? _mm512_srli_epi16(bits, static_cast<unsigned>(quad - 2))
                                     : bits;
    const __m512i code = _mm512_ternarylogic_epi32(pair, third, _mm512_set1_epi8(4), kOr);
    if constexpr (listed(kCodes)) return look_up(code);
    return code;
  }
  const __m512i fifteen = _mm512_set1_epi8(15);
  const __m512i both = _mm512_loadu_si512(codes + 64 * (quad & 3));
  const __m512i low = _mm512_and_si512(quad < 4 ? both : _mm512_srli_epi16(both, 4), fifteen);
  if constexpr (tabled(kCodes)) return look_up(low);
  // Bits shifted in from the neighbouring byte are masked out.
  if constexpr (kCodes == Codes::kNibble5) {
    const __m512i bits = _mm512_loadu_si512(high);
    const __m512i fifth = quad < 4   ? _mm512_slli_epi16(bits, static_cast<unsigned>(4 - quad))
                          : quad > 4 ? _mm512_srli_epi16(bits, static_cast<unsigned>(quad - 4))
                                     : bits;
    return _mm512_ternarylogic_epi32(low, fifth, _mm512_set1_epi8(16), kOr);
  }
  if constexpr (kCodes == Codes::kNibble6) {
    const __m512i bits = _mm512_loadu_si512(high + 64 * (quad / 4));
    const int s = quad & 3;
    const __m512i upper = s < 2   ? _mm512_slli_epi16(bits, static_cast<unsigned>(4 - 2 * s))
                          : s > 2 ? _mm512_srli_epi16(bits, 2)
                                  : bits;
    return _mm512_ternarylogic_epi32(low, upper, _mm512_set1_epi8(48), kOr);
  }
  return low;
}

inline __m512 half_floats(const std::uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

/// One group's scales and their multiples.
inline void table_entry(__m512 s, float* table) {
  const __m512 safe =
      _mm512_mask_mov_ps(s, _mm512_cmp_ps_mask(s, _mm512_setzero_ps(), _CMP_EQ_OQ), _mm512_set1_ps(1.f));
  _mm512_storeu_ps(table, safe);
  _mm512_storeu_ps(table + kPanel, _mm512_mul_ps(safe, _mm512_set1_ps(1.25f)));
  _mm512_storeu_ps(table + 2 * kPanel, _mm512_mul_ps(safe, _mm512_set1_ps(1.5f)));
  _mm512_storeu_ps(table + 3 * kPanel, _mm512_mul_ps(safe, _mm512_set1_ps(1.75f)));
}

/// What a minimum is multiplied by: of a group, or of half a group (kHalfMin).
template <bool kHalfMin>
inline __m512 row_offset(const float* offset, const std::int32_t* correction) {
  if constexpr (kHalfMin) return _mm512_castsi512_ps(_mm512_set1_epi32(*correction));
  return _mm512_set1_ps(*offset);
}

/// Where a tile reads the sums of the previous K and writes its own: [rows][32], `stride` floats from row to row. They
/// are in scratch between blocks: rows of the output are a multiple of 4 KiB apart, in one set of L1, and not cached.
struct PairSums {
  const float* from = nullptr;  ///< nullptr: they begin at zero
  std::int64_t from_stride = 0;
  float* to = nullptr;
  std::int64_t to_stride = 0;
};

/// `kDecoded`: codes are bytes already.
template <Codes kCodes, bool kMin, PairScales kScales, bool kDecoded, int kRows>
void pair_tile(const LinearArgs& args, const PairBlock& block, std::int64_t row, const PairSums& sums) {
  // Where scales are per 16 k, a group is two half groups; so are its minima then, with offsets in `corrections`.
  constexpr int kHalves = scales_per_32(kCodes);
  constexpr bool kHalfMin = kMin && kHalves == 2;
  constexpr Codes kRead = kDecoded ? Codes::kByte : kCodes;
  const QuantizedRows& q = args.quantized;
  const std::int64_t groups = args.k / kScaleBlock, first = row * groups + block.k0 / kScaleBlock;
  const std::int8_t* x = q.values + row * q.stride + block.k0;
  const std::int32_t* corrections = q.corrections + first * kHalves;
  const std::int32_t* exponents = q.exponents + first;
  const std::int32_t* multiples = q.multiples + first;
  const float* offsets = q.offsets + first;
  const float* row_scales = q.scales + first;
  const std::uint8_t *codes0 = block.codes[0], *codes1 = block.codes[1];
  const std::uint8_t *high0 = block.high[0], *high1 = block.high[1], *const codes_table = block.codes_table;
  const float *scale0 = block.scale[0], *scale1 = block.scale[1], *min0 = block.min[0], *min1 = block.min[1];
  float *table0 = block.table[0], *table1 = block.table[1];
  const std::uint8_t *half0 = block.half[0], *half1 = block.half[1];
  constexpr bool kHalf = half_scales(kCodes, kMin);
  // Eight chains of VPDPBUSD, one every four cycles each, leave its latency no slack, so odd quads have their own
  // chains (8 rows of Q4_0: 4 % faster in the caches).
  constexpr bool kSplit = kRows <= 4;
  const std::int64_t groups_here = block.kc / kScaleBlock;
  const std::int64_t prefetches = (block.prefetch.lines + groups_here - 1) / groups_here;
  const std::uint8_t* prefetch = block.prefetch.at;
  const std::uint8_t* const prefetch_end = prefetch + 64 * block.prefetch.lines;
  __m512 sum[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const float* from = sums.from + (row + r) * sums.from_stride;
    sum[r][0] = sums.from == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(from);
    sum[r][1] = sums.from == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(from + kPanel);
  }
  const auto weight_scale = [](const std::uint8_t* halves, const float* floats, int half_group) {
    if constexpr (kHalf) return half_floats(halves);
    return _mm512_loadu_ps(floats + half_group * kPanel);
  };
  for (std::int64_t g = 0; g < groups_here; ++g) {
#pragma GCC unroll 2
    for (int half = 0; half < kHalves; ++half) {
      __m512i dot[kRows][2], odd[kRows][2];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
        dot[r][0] = dot[r][1] = _mm512_set1_epi32(kHalfMin ? 0 : corrections[r * groups * kHalves + half]);
      if constexpr (kSplit) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) odd[r][0] = odd[r][1] = _mm512_setzero_si512();
      }
#pragma GCC unroll 8
      for (int i = 0; i < 8 / kHalves; ++i) {
        const int quad = i + 4 * half;
        // Here rather than before the dot products: there GCC 12 spills accumulators of the 6-bit tiles (7 %).
        if (quad == 0)
          for (std::int64_t j = 0; j < prefetches && prefetch != prefetch_end; ++j, prefetch += 64)
            _mm_prefetch(reinterpret_cast<const char*>(prefetch), _MM_HINT_T1);
        const __m512i w0 = pair_codes<kRead>(codes0, high0, codes_table, quad);
        const __m512i w1 = pair_codes<kRead>(codes1, high1, codes_table, quad);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          std::int32_t four;
          __builtin_memcpy(&four, x + r * q.stride + 4 * quad, 4);
          const __m512i a = _mm512_set1_epi32(four);
          auto& into = kSplit && i % 2 == 1 ? odd : dot;
          into[r][0] = _mm512_dpbusd_epi32(into[r][0], w0, a);
          into[r][1] = _mm512_dpbusd_epi32(into[r][1], w1, a);
        }
      }
      if constexpr (kSplit) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          dot[r][0] = _mm512_add_epi32(dot[r][0], odd[r][0]);
          dot[r][1] = _mm512_add_epi32(dot[r][1], odd[r][1]);
        }
      }
      if constexpr (kScales == PairScales::kBuild) {
        table_entry(weight_scale(half0, scale0, half), table0 + half * kTable);
        table_entry(weight_scale(half1, scale1, half), table1 + half * kTable);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        __m512 product0, product1;
        if constexpr (kScales == PairScales::kMultiply) {
          const __m512 scale = _mm512_set1_ps(row_scales[r * groups]);
          product0 = _mm512_mul_ps(weight_scale(half0, scale0, half), scale);
          product1 = _mm512_mul_ps(weight_scale(half1, scale1, half), scale);
        } else {
          const __m512i exponent = _mm512_set1_epi32(exponents[r * groups]);
          const std::int64_t multiple = multiples[r * groups];
          const auto product = [&](const float* table) {
            const __m512i entry = _mm512_loadu_si512(reinterpret_cast<const std::uint8_t*>(table) + multiple);
            return _mm512_castsi512_ps(_mm512_add_epi32(entry, exponent));
          };
          product0 = product(table0 + half * kTable);
          product1 = product(table1 + half * kTable);
        }
        sum[r][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][0]), product0, sum[r][0]);
        sum[r][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][1]), product1, sum[r][1]);
        if constexpr (kMin) {
          const __m512 offset = row_offset<kHalfMin>(offsets + r * groups, corrections + r * groups * kHalves + half);
          sum[r][0] = _mm512_fmadd_ps(_mm512_loadu_ps(min0 + half * kPanel), offset, sum[r][0]);
          sum[r][1] = _mm512_fmadd_ps(_mm512_loadu_ps(min1 + half * kPanel), offset, sum[r][1]);
        }
      }
    }
    codes0 += code_bytes(kRead), codes1 += code_bytes(kRead), high0 += high_bytes(kCodes), high1 += high_bytes(kCodes);
    if constexpr (kHalf) {
      half0 += 2 * kPanel, half1 += 2 * kPanel;
    } else {
      scale0 += kHalves * kPanel, scale1 += kHalves * kPanel;
    }
    ++row_scales;
    table0 += kHalves * kTable, table1 += kHalves * kTable;
    if constexpr (kMin) min0 += kHalves * kPanel, min1 += kHalves * kPanel;
    x += kScaleBlock, corrections += kHalves, ++exponents, ++multiples, ++offsets;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    _mm512_storeu_ps(sums.to + (row + r) * sums.to_stride, sum[r][0]);
    _mm512_storeu_ps(sums.to + (row + r) * sums.to_stride + kPanel, sum[r][1]);
  }
}

template <Codes kCodes, bool kMin, PairScales kScales, bool kDecoded = false>
void pair_tile_of(std::int64_t height, const LinearArgs& args, const PairBlock& block, std::int64_t row,
                  const PairSums& sums) {
  switch (height) {
    case 6:
      return pair_tile<kCodes, kMin, kScales, kDecoded, 6>(args, block, row, sums);
    case 5:
      return pair_tile<kCodes, kMin, kScales, kDecoded, 5>(args, block, row, sums);
    case 4:
      return pair_tile<kCodes, kMin, kScales, kDecoded, 4>(args, block, row, sums);
    default:
      break;
  }
  // Three tiles or more, nearly equal, have four rows or more each.
  if constexpr (kScales == PairScales::kMultiply && !kDecoded) {
    if (height == 3) return pair_tile<kCodes, kMin, kScales, kDecoded, 3>(args, block, row, sums);
    if (height == 2) return pair_tile<kCodes, kMin, kScales, kDecoded, 2>(args, block, row, sums);
    if (height == 1) return pair_tile<kCodes, kMin, kScales, kDecoded, 1>(args, block, row, sums);
  }
}

/// finish(codes) of one panel's block as bytes, [quad][16 outputs][4 k].
template <Codes kCodes, class Finish>
void decode_pair_codes(const std::uint8_t* codes, const std::uint8_t* high, const std::uint8_t* table,
                       std::int64_t groups, std::uint8_t* out, const Finish& finish) {
  for (std::int64_t g = 0; g < groups; ++g, codes += code_bytes(kCodes), high += high_bytes(kCodes), out += 512) {
#pragma GCC unroll 8
    for (int quad = 0; quad < 8; ++quad)
      _mm512_storeu_si512(out + 64 * quad, finish(pair_codes<kCodes>(codes, high, table, quad)));
  }
}

/// Two tiles do not repay the stores of decoded codes.
constexpr std::int64_t kPerBlockRows = 2 * kPairRows + 1;

/// Whether the tiles of rows read codes that were decoded before.
inline bool decodes_per_block(const LinearArgs& args) {
  return args.decoding == Decoding::kPerBlock && args.rows >= kPerBlockRows &&
         narrower_than_byte(args.panels.format->codes);
}

/// All rows over one block, in tiles of nearly equal height (32 rows: 6 6 5 5 5 5).
template <Codes kCodes, bool kMin>
void pair_rows(const LinearArgs& args, PairBlock block, const PairSums& sums) {
  const std::int64_t tiles = (args.rows + kPairRows - 1) / kPairRows;
  // Exact scales of activations have no short mantissa to tabulate, and two scales per 32 k would take more loads than
  // the table saves multiplications.
  constexpr bool kMultiplies = scales_per_32(kCodes) == 2 || kCodes == Codes::kByte;
  auto* first = pair_tile_of<kCodes, kMin, PairScales::kMultiply>;
  auto* others = first;
  if (decodes_per_block(args)) {
    if constexpr (narrower_than_byte(kCodes)) {
      for (int p = 0; p < 2; ++p) {
        decode_pair_codes<kCodes>(block.codes[p], block.high[p], block.codes_table, block.kc / kScaleBlock,
                                  block.decoded[p], [](__m512i as_they_are) { return as_they_are; });
        block.codes[p] = block.decoded[p];
      }
      first = others = pair_tile_of<kCodes, kMin, PairScales::kMultiply, true>;
    }
  } else if (tiles > 2 && !kMultiplies && args.panels.regular && args.quantized.regular) {
    first = pair_tile_of<kCodes, kMin, PairScales::kBuild>;
    others = pair_tile_of<kCodes, kMin, PairScales::kTabled>;
  }
  const Prefetch prefetch = block.prefetch;
  std::int64_t row = 0;
  for (std::int64_t t = 0; t < tiles; ++t) {
    block.prefetch = prefetch.share(t, tiles);
    const std::int64_t height = args.rows / tiles + (t < args.rows % tiles ? 1 : 0);
    (t == 0 ? first : others)(height, args, block, row, sums);
    row += height;
  }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
