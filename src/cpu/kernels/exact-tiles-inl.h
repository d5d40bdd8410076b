#pragma once

#include "cpu/kernels/exact-unit-inl.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/packed-inl.h"
#include "cpu/kernels/tiles-inl.h"
#ifdef DLLM_PAIR_TILES
#include "cpu/kernels/pairs-inl.h"
#endif

// Compiled once for each kind of matrix tile (AMX, its emulation).
//
// Products of the arithmetic `exact` on matrix tiles: panels are decoded block by block of K, and each block is
// multiplied with all tiles of rows (exact-unit-inl.h).
//
// Rows are divided into tiles of one height, of which the last begins earlier if it must: rows that two tiles have in
// common are computed twice, with the same result. The code is that of the next even height, whose last row then has
// sums that nothing reads.

namespace dllm::cpu::DLLM_ISA {
namespace {

using ExactRun = void(const ExactUnit& unit, float* totals);
template <int kHeight, int kGroup, bool kMin>
[[gnu::noinline]] void exact_run(const ExactUnit& unit, float* totals) {
  ExactTile<kHeight, kGroup, kMin>(unit).run(totals);
}

template <int kHeight>
ExactRun* exact_run_of(const PackedFormat& format) {
  if (format.group == 16) return format.has_min ? exact_run<kHeight, 16, true> : exact_run<kHeight, 16, false>;
  return format.has_min ? exact_run<kHeight, 32, true> : exact_run<kHeight, 32, false>;
}
/// `height`: 9 (17 rows are two tiles) to 16.
inline ExactRun* exact_run_for(const PackedFormat& format, std::int64_t height) {
  switch ((height + 1) / 2) {
    case 5:
      return exact_run_of<10>(format);
    case 6:
      return exact_run_of<12>(format);
    case 7:
      return exact_run_of<14>(format);
    default:
      return exact_run_of<16>(format);
  }
}

/// Codes of `groups` groups of 32 k, from group `first` on, as signed bytes u - z.
template <Codes kCodes>
void exact_codes(const PackedFormat& format, const PackedLayout& layout, const std::uint8_t* panel, std::int64_t first,
                 std::int64_t groups, std::uint8_t* out) {
#ifdef DLLM_PAIR_TILES
  const std::uint8_t* codes = panel + first * code_bytes(kCodes);
  const std::uint8_t* high = panel + layout.high + first * high_bytes(kCodes);
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(format.zero));
  decode_pair_codes<kCodes>(codes, high, code_table(format), groups, out,
                            [zero](__m512i quad) { return _mm512_sub_epi8(quad, zero); });
#else
  unpack_codes(format, layout, panel, first, groups, out);
  for (std::int64_t i = 0; i < groups * 512; ++i) out[i] = static_cast<std::uint8_t>(out[i] - format.zero);
#endif
}
using ExactCodes = void(const PackedFormat& format, const PackedLayout& layout, const std::uint8_t* panel,
                        std::int64_t first, std::int64_t groups, std::uint8_t* out);

/// Rows [first, first + count) of a product, kExactTileRows to kExactMostRows of them, times outputs [n, n_end), at
/// most kExactMostPanels panels.
class ExactChunk {
 public:
  ExactChunk(const LinearArgs& args, std::int64_t first, std::int64_t count, ExactScratch& own)
      : args_(args),
        format_(*args.panels.format),
        layout_(*args.panels.layout),
        own_(own),
        first_(first),
        count_(count),
        tiles_((count + 15) / 16),
        height_((count + tiles_ - 1) / tiles_),
        run_(exact_run_for(format_, height_)),
        codes_(with_codes(format_, []<Codes kCodes, bool>() -> ExactCodes* { return exact_codes<kCodes>; })) {
    _tile_loadconfig(&kExactConfigs.of[format_.group / 32][height_]);
  }
  ~ExactChunk() { _tile_release(); }

  void run(std::int64_t n, std::int64_t n_end) {
    const std::int64_t panels = (n_end - n + kPanel - 1) / kPanel;
    for (std::int64_t k0 = 0; k0 < args_.k; k0 += kExactBlock) {
      arrange_scales(k0);
      for (std::int64_t p = 0; p < panels; ++p) {
        const bool wraps = p + 1 == panels;
        const std::int64_t next_k = wraps ? k0 + kExactBlock : k0;
        const std::uint8_t* const next = next_k < args_.k ? panel_at(n, wraps ? 0 : p + 1) : after(n_end);
        block(panel_at(n, p), k0, next, next_k < args_.k ? next_k : 0, own_.totals[p]);
      }
    }
    for (std::int64_t p = 0; p < panels; ++p) write(own_.totals[p], n + p * kPanel, n_end);
  }

 private:
  std::int64_t row_of(std::int64_t tile) const { return tile + 1 == tiles_ ? count_ - height_ : tile * height_; }
  const std::uint8_t* panel_at(std::int64_t n, std::int64_t p) const {
    return args_.panels.data + (n / kPanel + p) * layout_.bytes;
  }
  /// The panel that will be needed after those of [.., n_end), or null.
  const std::uint8_t* after(std::int64_t n_end) const {
    return n_end < args_.n ? args_.panels.data + n_end / kPanel * layout_.bytes : args_.follow;
  }

  /// The tile's first row among the 16 whose scales are kept for it.
  std::int64_t scales_from(std::int64_t tile) const {
    const std::int64_t last = count_ < 16 ? 0 : count_ - 16;
    return row_of(tile) < last ? row_of(tile) : last;
  }

  /// Scales of block k0 of all rows, as tiles read them.
  void arrange_scales(std::int64_t k0) {
    const std::int64_t groups = block_length(k0) / kScaleBlock, row_groups = args_.k / kScaleBlock;
    for (std::int64_t t = 0; t < tiles_; ++t) {
      const float* const from = args_.quantized.scales + (first_ + scales_from(t)) * row_groups + k0 / kScaleBlock;
      std::int64_t g = 0;
      for (; g + 16 <= groups && count_ >= 16; g += 16)
        transpose16(reinterpret_cast<const std::uint32_t*>(from + g), row_groups,
                    reinterpret_cast<std::uint32_t*>(own_.row_scales[t][g]));
      for (; g < groups; ++g)
        for (std::int64_t r = 0; r < 16 && r < count_; ++r) own_.row_scales[t][g][r] = from[r * row_groups + g];
    }
  }

  std::int64_t block_length(std::int64_t k0) const { return args_.k - k0 < kExactBlock ? args_.k - k0 : kExactBlock; }

  /// The planes of block k0 of a panel.
  void expect(const std::uint8_t* panel, std::int64_t k0, ExactAhead& ahead) const {
    const std::int64_t first = k0 / kScaleBlock, count = block_length(k0) / kScaleBlock;
    const std::int64_t group = k0 / format_.group, groups = block_length(k0) / format_.group;
    const std::int64_t scale_bytes = kPanel * (format_.scales == Scales::kHalf ? 2 : 1);
    ahead.add(panel + first * code_bytes(format_.codes), count * code_bytes(format_.codes));
    ahead.add(panel + layout_.high + first * high_bytes(format_.codes), count * high_bytes(format_.codes));
    ahead.add(panel + layout_.scale + group * scale_bytes, groups * scale_bytes);
    if (format_.has_min && format_.scales != Scales::kSuperPairs)
      ahead.add(panel + layout_.min + group * scale_bytes, groups * scale_bytes);
  }

  /// Block k0 of a panel times all rows; meanwhile block `next_k` of `next`, if any, is prefetched.
  void block(const std::uint8_t* panel, std::int64_t k0, const std::uint8_t* next, std::int64_t next_k,
             float (*totals)[kTileWords]) {
    const std::int64_t kc = block_length(k0);
    const std::int64_t groups = kc / format_.group, first_group = k0 / format_.group;
    codes_(format_, layout_, panel, k0 / kScaleBlock, kc / kScaleBlock, own_.codes);
    for (std::int64_t g = 0; g < groups; ++g) {
      store(own_.scales + g * kPanel, group_scale(format_, layout_, panel, first_group + g));
      if (format_.has_min) store(own_.minima + g * kPanel, group_min(format_, layout_, panel, first_group + g));
    }
    ExactAhead ahead;
    if (next != nullptr) expect(next, next_k, ahead);
    ahead.divide(tiles_ * groups);
    const QuantizedRows& q = args_.quantized;
    const std::int64_t row_offsets = args_.k / format_.group;
    // Offsets of groups of 16 k are floats among the corrections (QuantizedRows).
    const void* const offsets = has_half_offsets(format_) ? static_cast<const void*>(q.corrections) : q.offsets;
    for (std::int64_t t = 0; t < tiles_; ++t) {
      const std::int64_t row = first_ + row_of(t);
      const ExactUnit unit = {.own = own_,
                              .rows = q.values + row * q.stride + k0,
                              .row_bytes = q.stride,
                              .row_scales = own_.row_scales[t][0] + (row_of(t) - scales_from(t)),
                              .offsets = static_cast<const std::byte*>(offsets) + 4 * (row * row_offsets + first_group),
                              .row_offsets = row_offsets,
                              .last = height_ - 1,
                              .groups = groups,
                              .lanes = k0 == 0 ? 0 : 16,
                              .ahead = ahead};
      run_(unit, totals[t]);
    }
  }

  void write(const float (*totals)[kTileWords], std::int64_t n, std::int64_t n_end) const {
    const int columns = static_cast<int>(n_end - n < kPanel ? n_end - n : kPanel);
    const F32 bias = args_.bias == nullptr ? set1(0.f) : load_n(args_.bias + n, columns);
    for (std::int64_t t = 0; t < tiles_; ++t)
      for (std::int64_t r = 0; r < height_; ++r) {
        const F32 sum = load(totals[t] + kPanel * r);
        store_n(args_.out + (first_ + row_of(t) + r) * args_.out_stride + (n - args_.out_origin),
                args_.bias == nullptr ? sum : add(sum, bias), columns);
      }
  }

  const LinearArgs& args_;
  const PackedFormat& format_;
  const PackedLayout& layout_;
  ExactScratch& own_;
  const std::int64_t first_, count_, tiles_, height_;
  ExactRun* const run_;
  ExactCodes* const codes_;
};

/// Outputs [n_begin, n_end) of a product with integer codes; at least kExactTileRows rows.
void exact_tiles_linear(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  auto& own = *static_cast<ExactScratch*>(scratch);
  // Nearly equal chunks of rows, none of which is too small for a tile.
  const std::int64_t chunks = (args.rows + kExactMostRows - 1) / kExactMostRows;
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t first = args.rows * c / chunks, count = args.rows * (c + 1) / chunks - first;
    // Rows that L2 does not hold are used for several panels at a time, block by block.
    const std::int64_t outputs = (count * args.k <= kResidentRows ? 4 : kExactMostPanels) * kPanel;
    ExactChunk chunk(args, first, count, own);
    for (std::int64_t n = n_begin; n < n_end; n += outputs) chunk.run(n, n_end - n < outputs ? n_end : n + outputs);
  }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
