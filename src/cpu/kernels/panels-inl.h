#pragma once

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/packed-inl.h"

// Included only by sets that define DLLM_PANEL_TILES (AVX2, AVX-VNNI, NEON); see kernels-inl.h.
//
// Panel tiles: R rows of x times one panel of packed weights; codes are decoded in registers. The equivalent of
// pairs-inl.h for registers of 256 and 128 bits, where a panel is two registers or four.
//
// A set defines Dots<most>, the sum over k of codes up to `most` times bytes, with the number of rows that its
// registers hold: R integer accumulators of a panel, the codes of a quad, a broadcast, constants. Float accumulators
// are kept in L1: a group of 32 k is 8 steps of R panels each, so that a load and a store per row and register are
// negligible.
//
//   AVX-VNNI  6 rows: 12 accumulators, 2 codes, 1 broadcast, 1 mask of 16. A group costs 16 VPDPBUSD per row, then 2
//             multiplications of scales and 2 FMA on the same ports: at most 80 % of the peak of VPDPBUSD.
//   AVX2      4 rows. VPMADDUBSW sums pairs in 16 bits. Codes up to 15 leave room for all eight quads of a group there
//             (8 x 2 x 15 x 127 = 30480), so a step is 2 instructions instead of 3, and VPMADDWD comes once a group;
//             codes up to 63 for two quads (2 x 2 x 63 x 127 = 32004), 2.5 instructions; codes up to 127 for one, 3
//             instructions. Bytes go as |w| times x with the sign of w, 4 instructions; the table of IQ4 gives w at
//             once, others are made unsigned and flipped. Decoded bytes of IQ4 are magnitudes and signs (SplitDots).
//   NEON      5 rows: 20 accumulators, 4 codes, 5 registers with the next 16 k of each row, whose lanes SDOT takes.
//
// From three tiles of rows on, codes that need more than a mask are decoded once per block, to bytes in scratch; with
// AVX2 the others too, from six on (Zen 4, Q4_0: 48 and 128 rows 2.5 % faster, 16 rows 1 % slower). The table that
// saves pairs-inl.h the multiplication of scales does not pay off here: with registers of half the width,
// its loads and addresses cost as much as the multiplications.
//
// Order of summation: as int8_tile() in linear-inl.h.

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr std::int64_t kPanelBlock = 1024;  ///< K per block: codes 8 to 16 KiB, scales 2 to 8 KiB, rows 1 KiB each

/// Largest code that a tile sees; kSignedBytes: bytes of both signs, of sets that say Dots::kSigned, else up to 255.
constexpr int most_code(Codes codes) {
  switch (codes) {
    case Codes::kTwoBits:  // they gain nothing from sums that are smaller still
    case Codes::kThreeBits:
    case Codes::kNibble:
      return 15;
    case Codes::kNibble5:
    case Codes::kE2M1:
    case Codes::kE2M1Halves:
      return 31;
    case Codes::kNibble6:
    case Codes::kListed4:
      return 63;
    case Codes::kListed3:
    case Codes::kListed3Halves:
      return 127;
    case Codes::kIq4:
      return kSignedBytes;
    default:
      return 255;
  }
}

/// Number of tiles from which on they read codes that were decoded before; 0: never.
template <Codes kCodes>
constexpr std::int64_t decodes_from() {
  using Dot = Dots<most_code(kCodes)>;
  constexpr bool kChooses = kCodes == Codes::kNibble || kCodes == Codes::kListed3 || kCodes == Codes::kListed3Halves;
  if constexpr (kChooses && requires { Dot::kDecodesFrom; }) return Dot::kDecodesFrom;
  if constexpr (kCodes != Codes::kNibble && narrower_than_byte(kCodes)) return 3;
  return 0;
}

/// Whether tiles over decoded codes read magnitudes and masks of signs.
template <Codes kCodes>
constexpr bool kSplitCodes = Dots<most_code(kCodes)>::kSigned;
template <Codes kCodes, bool kDecoded>
struct TileDots {
  using Type = Dots<most_code(kCodes)>;
};
template <Codes kCodes>
  requires(kSplitCodes<kCodes>)
struct TileDots<kCodes, true> {
  using Type = typename Dots<most_code(kCodes)>::Split;
};

/// One block of K of a panel.
struct PanelBlock {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* high = nullptr;
  const std::uint8_t* table = nullptr;  ///< of values, where codes are listed
  const float* negatives = nullptr;     ///< of split codes: [groups][16] integers, as bits
  const float* scale = nullptr;         ///< [groups][16]
  const float* min = nullptr;
  std::int64_t k0 = 0;
  std::int64_t kc = 0;
  const std::uint8_t* prefetch = nullptr;
  std::int64_t prefetch_per_group = 0;  ///< cache lines
};

/// Codes of quad kQuad of a group: byte i of each lane is k = 4 kQuad + i.
template <Codes kCodes, int kQuad>
inline U8 panel_codes(const std::uint8_t* codes, const std::uint8_t* high, const std::uint8_t* table) {
  if constexpr (kCodes == Codes::kByte) return load_bytes(codes + 64 * kQuad);
  if constexpr (in_pairs(kCodes)) {
    const U8 pair = and_bytes(shift_bits<-2 * (kQuad & 3)>(load_bytes(codes + 64 * (kQuad / 4))), 3);
    if constexpr (kCodes == Codes::kTwoBits) return pair;
    const U8 code = or_bytes(pair, and_bytes(shift_bits<2 - kQuad>(load_bytes(high)), 4));
    if constexpr (listed(kCodes)) return look_up(table, code);
    return code;
  }
  const U8 both = load_bytes(codes + 64 * (kQuad & 3));
  const U8 low = and_bytes(kQuad < 4 ? both : shift_bits<-4>(both), 15);
  if constexpr (kCodes == Codes::kIq4 && Dots<kSignedBytes>::kSigned) return look_up(kIq4Bytes, low);
  if constexpr (tabled(kCodes)) return look_up(table, low);
  // Bits shifted in from the neighbouring byte are masked out.
  if constexpr (kCodes == Codes::kNibble5) return or_bytes(low, and_bytes(shift_bits<4 - kQuad>(load_bytes(high)), 16));
  if constexpr (kCodes == Codes::kNibble6)
    return or_bytes(low, and_bytes(shift_bits<4 - 2 * (kQuad & 3)>(load_bytes(high + 64 * (kQuad / 4))), 48));
  return low;
}

/// Quad kQuad for every row, and the next one if the set processes two at once.
template <Codes kCodes, int kQuad, int kRows, class Dot>
inline void panel_step(const std::uint8_t* codes, const std::uint8_t* high, const std::uint8_t* table,
                       const Quads (&x)[kRows], typename Dot::Sum (&dot)[kRows]) {
  // A nibble's byte is read again for its upper half: otherwise GCC keeps it in a register, and spills others.
  asm("" : "+r"(codes), "+r"(high));
  const typename Dot::Ready w = [&] {
    if constexpr (requires { Dot::take_apart; })
      return Dot::ready(load_bytes(codes + 64 * kQuad), load_bytes(high + 64 * kQuad));
    else
      return Dot::ready(panel_codes<kCodes, kQuad>(codes, high, table));
  }();
  if constexpr (Dot::kTwoSteps) {
    const typename Dot::Ready next = Dot::ready(panel_codes<kCodes, kQuad + 1>(codes, high, table));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) dot[r] = Dot::template two_steps < kQuad & 3 > (dot[r], w, next, x[r]);
  } else {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) dot[r] = Dot::template step < kQuad & 3 > (dot[r], w, x[r]);
  }
}

/// Quads kQuad to kQuad + 3 for every row.
template <Codes kCodes, int kQuad, int kRows, class Dot>
inline void panel_quads(const std::uint8_t* codes, const std::uint8_t* high, const std::uint8_t* table,
                        const std::int8_t* x, std::int64_t stride, typename Dot::Sum (&dot)[kRows]) {
  Quads quads[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) quads[r] = load_quads(x + r * stride + 4 * kQuad);
  panel_step<kCodes, kQuad, kRows, Dot>(codes, high, table, quads, dot);
  if constexpr (!Dot::kTwoSteps) panel_step<kCodes, kQuad + 1, kRows, Dot>(codes, high, table, quads, dot);
  panel_step<kCodes, kQuad + 2, kRows, Dot>(codes, high, table, quads, dot);
  if constexpr (!Dot::kTwoSteps) panel_step<kCodes, kQuad + 3, kRows, Dot>(codes, high, table, quads, dot);
}

/// total[kRows][16] += rows [row, row + kRows) of x times the block.
template <Codes kCodes, bool kMin, bool kDecoded, int kRows>
[[gnu::noinline]] void panel_tile(const LinearArgs& args, const PanelBlock& block, std::int64_t row, float* total) {
  using Dot = typename TileDots<kCodes, kDecoded>::Type;
  constexpr Codes kStored = kDecoded ? Codes::kByte : kCodes;
  constexpr bool kSplit = kDecoded && kSplitCodes<kCodes>;
  // Where scales are per 16 k, a group is two half groups; so are its minima then, with offsets in `corrections`.
  constexpr int kHalves = scales_per_32(kCodes);
  constexpr bool kHalfMin = kMin && kHalves == 2;
  const QuantizedRows& q = args.quantized;
  const std::int64_t groups = args.k / kScaleBlock, first = row * groups + block.k0 / kScaleBlock, stride = q.stride;
  const std::int8_t* x = q.values + row * stride + block.k0;
  const std::int32_t* corrections = q.corrections + first * kHalves;
  const float *scales = q.scales + first, *offsets = q.offsets + first;
  const std::uint8_t *codes = block.codes, *high = block.high, *prefetch = block.prefetch;
  const std::uint8_t* const table = block.table;
  const float *scale = block.scale, *min = block.min;
  for (std::int64_t g = 0; g < block.kc / kScaleBlock; ++g) {
    for (std::int64_t i = 0; i < block.prefetch_per_group; ++i, prefetch += 64) __builtin_prefetch(prefetch, 0, 2);
    const auto half = [&]<int kHalf>() {
      typename Dot::Sum dot[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
        if constexpr (kSplit)
          dot[r] = as_i32(load(block.negatives + g * kPanel));
        else
          dot[r] = Dot::begin(kHalfMin ? 0 : corrections[r * groups * kHalves + kHalf]);
      panel_quads<kStored, 4 * kHalf, kRows, Dot>(codes, high, table, x, stride, dot);
      if constexpr (kHalves == 1) panel_quads<kStored, 4, kRows, Dot>(codes, high, table, x, stride, dot);
      // Otherwise GCC keeps what it stored in registers that it does not have, and stores it twice.
      asm("" : "+r"(total));
      const F32 weights = load(scale + kHalf * kPanel);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const std::int32_t correction = corrections[r * groups * kHalves + kHalf];
        const F32 sum = to_f32(Dot::end(dot[r], kHalfMin ? 0 : correction));
        F32 to = fma(sum, mul(weights, set1(scales[r * groups])), load(total + r * kPanel));
        if constexpr (kHalfMin) to = fma(load(min + kHalf * kPanel), as_f32(set1(correction)), to);
        if constexpr (kMin && !kHalfMin) to = fma(load(min), set1(offsets[r * groups]), to);
        store(total + r * kPanel, to);
      }
    };
    half.template operator()<0>();
    if constexpr (kHalves == 2) half.template operator()<1>();
    codes += code_bytes(kStored), high += kSplit ? code_bytes(kStored) : high_bytes(kStored), x += kScaleBlock;
    scale += kHalves * kPanel, corrections += kHalves, ++scales;
    if constexpr (kMin) min += kHalves * kPanel, ++offsets;
  }
}

template <Codes kCodes, bool kMin, bool kDecoded, int kRows = Dots<most_code(kCodes)>::kRows>
inline void panel_tile_of(std::int64_t rows, const LinearArgs& args, const PanelBlock& block, std::int64_t row,
                          float* total) {
  // Many tiles of nearly equal height have more than half the most rows each.
  if constexpr (kRows > (kDecoded ? Dots<most_code(kCodes)>::kRows / 2 : 0)) {
    if (rows == kRows) return panel_tile<kCodes, kMin, kDecoded, kRows>(args, block, row, total);
    panel_tile_of<kCodes, kMin, kDecoded, kRows - 1>(rows, args, block, row, total);
  }
}

/// Codes of a block as bytes.
template <Codes kCodes>
void decode_panel(const PanelBlock& block, std::uint8_t* out) {
  const std::uint8_t *codes = block.codes, *high = block.high, *const table = block.table;
  const auto four = [&]<int kQuad>() {
    store_bytes(out + 64 * kQuad, panel_codes<kCodes, kQuad>(codes, high, table));
    store_bytes(out + 64 * kQuad + 64, panel_codes<kCodes, kQuad + 1>(codes, high, table));
    store_bytes(out + 64 * kQuad + 128, panel_codes<kCodes, kQuad + 2>(codes, high, table));
    store_bytes(out + 64 * kQuad + 192, panel_codes<kCodes, kQuad + 3>(codes, high, table));
  };
  for (std::int64_t g = 0; g < block.kc / kScaleBlock;
       ++g, codes += code_bytes(kCodes), high += high_bytes(kCodes), out += 512)
    four.template operator()<0>(), four.template operator()<4>();
}

/// Rows whose sums stay in scratch between blocks of K. Those of more rows wait in the output, whose rows are a
/// multiple of 4 KiB apart, in one set of L1.
constexpr std::int64_t kPanelSums = 256;

/// Scratch of one block of a panel.
struct PanelScratch {
  float scale[kPanelBlock / kSumBlock * kPanel];
  float min[kPanelBlock / kSumBlock * kPanel];
  std::uint8_t codes[kPanelBlock * kPanel];
  std::uint8_t masks[kPanelBlock * kPanel];  ///< of split codes, and `negatives`
  float negatives[kPanelBlock / kScaleBlock * kPanel];
  alignas(64) float sums[kPanelSums * kPanel];
};
static_assert(sizeof(PanelScratch) <= kLinearScratchBytes);

/// Codes of a block for the tiles that follow, to scratch.
template <Codes kCodes>
void decode_block(PanelBlock& block, PanelScratch& scratch) {
  if constexpr (kSplitCodes<kCodes>) {
    const std::uint8_t *codes = block.codes, *high = block.high, *const table = block.table;
    for (std::int64_t g = 0; g < block.kc / kScaleBlock; ++g, codes += code_bytes(kCodes), high += high_bytes(kCodes)) {
      const auto take = [&]<int kQuad>(I32 sum) {
        const std::int64_t at = 512 * g + 64 * kQuad;
        return add(sum, Dots<most_code(kCodes)>::Split::take_apart(panel_codes<kCodes, kQuad>(codes, high, table),
                                                                   scratch.codes + at, scratch.masks + at));
      };
      const auto four = [&]<int kFirst>(I32 sum) {
        sum = take.template operator()<kFirst + 1>(take.template operator()<kFirst>(sum));
        return take.template operator()<kFirst + 3>(take.template operator()<kFirst + 2>(sum));
      };
      const I32 sum = four.template operator()<4>(four.template operator()<0>(set1(std::int32_t{0})));
      store(scratch.negatives + g * kPanel, as_f32(sum));
    }
    block.high = scratch.masks, block.negatives = scratch.negatives;
  } else {
    decode_panel<kCodes>(block, scratch.codes);
  }
  block.codes = scratch.codes;
}

/// Where the sums of a panel go.
struct PanelOutput {
  float* out = nullptr;
  int columns = 0;
  const float* bias = nullptr;  ///< or null
  bool last = false;            ///< after this block they are complete
};

/// One tile of rows over one block: its sums from scratch or from the output, tile(total), and back.
template <class Tile>
inline void panel_sums(const LinearArgs& args, bool first, std::int64_t row, std::int64_t height,
                       const PanelOutput& output, PanelScratch& scratch, const Tile& tile) {
  const bool kept = args.rows <= kPanelSums, biased = output.last && output.bias != nullptr;
  float* const total = scratch.sums + (kept ? row : 0) * kPanel;
  float* const to = output.out + row * args.out_stride;
  if (first || !kept)
    for (std::int64_t r = 0; r < height; ++r)
      store(total + r * kPanel, first ? set1(0.f) : load_n(to + r * args.out_stride, output.columns));
  tile(total);
  if (output.last || !kept)
    for (std::int64_t r = 0; r < height; ++r) {
      const F32 sum = load(total + r * kPanel);
      store_n(to + r * args.out_stride, biased ? add(sum, load_n(output.bias, output.columns)) : sum, output.columns);
    }
}

/// All rows over one block, in tiles of nearly equal height.
template <Codes kCodes, bool kMin>
void panel_rows(const LinearArgs& args, PanelBlock block, std::int64_t lines, const PanelOutput& output,
                PanelScratch& scratch) {
  constexpr int kMost = Dots<most_code(kCodes)>::kRows;
  const std::int64_t tiles = (args.rows + kMost - 1) / kMost, groups = block.kc / kScaleBlock;
  block.prefetch_per_group = (lines + tiles * groups - 1) / (tiles * groups);
  auto* tile = panel_tile_of<kCodes, kMin, false>;
  if constexpr (decodes_from<kCodes>() > 0)
    if (tiles >= decodes_from<kCodes>()) {
      decode_block<kCodes>(block, scratch);
      tile = panel_tile_of<kCodes, kMin, true>;
    }
  std::int64_t row = 0;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t height = args.rows / tiles + (t < args.rows % tiles ? 1 : 0);
    panel_sums(args, block.k0 == 0, row, height, output, scratch,
               [&](float* total) { tile(height, args, block, row, total); });
    block.prefetch += block.prefetch_per_group * groups * 64;
    row += height;
  }
}

using PanelRows = void(const LinearArgs& args, PanelBlock block, std::int64_t lines, const PanelOutput& output,
                       PanelScratch& scratch);

/// Outputs [n, n + columns), by `rows`. The tiles prefetch the panel that follows, spread evenly.
void panel_product(const LinearArgs& args, std::int64_t n, int columns, PanelRows* rows, PanelScratch& scratch) {
  const PackedFormat& format = *args.panels.format;
  const PackedLayout& layout = *args.panels.layout;
  const std::uint8_t* panel = args.panels.data + n / kPanel * layout.bytes;
  const std::uint8_t* const next = n + kPanel < args.n ? panel + layout.bytes : args.follow;
  const std::int64_t lines = next != nullptr ? layout.bytes / 64 : 0;
  PanelOutput output{args.out + (n - args.out_origin), columns, args.bias == nullptr ? nullptr : args.bias + n};
  PanelBlock block;
  block.scale = scratch.scale, block.min = scratch.min, block.table = code_table(format);
  for (std::int64_t k0 = 0; k0 < args.k; k0 += kPanelBlock) {
    block.k0 = k0;
    block.kc = args.k - k0 < kPanelBlock ? args.k - k0 : kPanelBlock;
    block.codes = panel + k0 / 32 * code_bytes(format.codes);
    block.high = panel + layout.high + k0 / 32 * high_bytes(format.codes);
    for (std::int64_t g = 0; g < block.kc / format.group; ++g) {
      store(scratch.scale + g * kPanel, group_scale(format, layout, panel, k0 / format.group + g));
      if (format.has_min) store(scratch.min + g * kPanel, group_min(format, layout, panel, k0 / format.group + g));
    }
    const std::int64_t begin = lines * k0 / args.k, end = lines * (k0 + block.kc) / args.k;
    block.prefetch = next + begin * 64;
    output.last = k0 + block.kc == args.k;
    rows(args, block, end - begin, output, scratch);
  }
}

[[maybe_unused]] void int8_panel_tiles(const LinearArgs& args, std::int64_t n, int columns, PanelScratch& scratch) {
  PanelRows* const rows =
      with_codes(*args.panels.format, []<Codes kCodes, bool kMin>() -> PanelRows* { return panel_rows<kCodes, kMin>; });
  panel_product(args, n, columns, rows, scratch);
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
