#pragma once

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/packed-inl.h"
#include "cpu/kernels/tiles-inl.h"
#ifdef DLLM_PAIR_TILES
#include "cpu/kernels/pairs-inl.h"
#endif

// Compiled once for each kind of matrix tile (AMX, its emulation).
//
// The arithmetic `exact` on matrix tiles (AMX, or tile_emulation.h): integers are exact in any order, so the sums of a
// group of weights may come from a tile, and everything after them is what pairs-inl.h computes, in the same order.
//
//   0 to 3  sums of four successive groups, [rows][16 outputs]
//   4 5     rows, [rows][group k]
//   6 7     weights of a panel, decoded to signed bytes u - z, [group / 4][16 outputs][4 k]
//
// A group of 16 or 32 k fills a quarter or half of a tile's depth of 64, but a product takes its 16 cycles anyway, and
// the sums must leave the tile for every group. On Intel's processors (family 6, model 207) neither the 16 cycles of a
// product nor those of a store overlap with each other, or with vector instructions of port 5: 4.3 ns and 4.1 ns of a
// group of 16 rows and 16 outputs, loads 3 ns, conversions and sums 7 to 8 ns, together 17 ns. That is 950 GOP/s of the
// 450 to 500 that dot products reach (research/lab/performance.md). It is so if nothing waits: a product is stored two
// groups after it began, read two groups later, and its pieces stand between the vector instructions (in a row: 19 ns).
// Rows rounded to BF16, whose sums are floats already, need loads of twice the size: 20 ns.
//
// Rows are divided into tiles of one even height, of which the last begins earlier if it must: rows that two tiles have
// in common are computed twice, with the same result.

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr std::int64_t kExactTileRows = 16;   ///< least rows: fewer fill a tile badly
constexpr std::int64_t kExactBlock = 1024;    ///< K per block: codes as bytes and a tile of rows, 16 KiB of L1 each
constexpr std::int64_t kExactMostRows = 256;  ///< of a chunk
constexpr std::int64_t kExactMostPanels = 8;  ///< of a chunk: 128 KiB of totals
constexpr std::int64_t kExactResident = 1024 * 1024;  ///< bytes of rows that stay in L2 beside weights and totals
constexpr int kExactSums = 8;                         ///< groups whose sums wait at most, a power of two

struct ExactScratch {
  std::uint8_t codes[kExactBlock * kPanel];                              ///< [k / 4][16 outputs][4 k]
  float scales[kExactBlock / kSumBlock * kPanel];                        ///< [group][16]
  float minima[kExactBlock / kSumBlock * kPanel];                        ///< [group][16]
  float row_scales[kExactMostRows / 16][kExactBlock / kScaleBlock][16];  ///< by tile of rows
  float sums[kExactSums][kTileWords];                                    ///< by group, [rows][16]; the bits of integers
  float totals[kExactMostPanels][kExactMostRows / 16][kTileWords];       ///< by tile of rows, [rows][16]
};
static_assert(sizeof(ExactScratch) <= kLinearScratchBytes);

/// Of tiles 0 to 3 (sums), 4 and 5 (rows), 6 and 7 (weights).
constexpr TileConfig exact_config(int height, int group) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.rows[t] = static_cast<std::uint8_t>(t < 6 ? height : group / 4);
    config.row_bytes[t] = static_cast<std::uint16_t>(t == 4 || t == 5 ? group : 64);
  }
  return config;
}
template <int kHeight, int kGroup>
constexpr TileConfig kExactConfig = exact_config(kHeight, kGroup);

/// Lines of the next block's planes, to be brought into L2 a few per group: the processor's own prefetchers follow
/// neither the planes nor the jump to another panel.
class ExactAhead {
 public:
  void add(const std::uint8_t* from, std::int64_t bytes) {
    if (bytes > 0) spans_[count_++] = {from, from + bytes}, lines_ += (bytes + 63) / 64;
  }
  /// They are fetched in `steps` steps.
  void divide(std::int64_t steps) { per_step_ = (lines_ + steps - 1) / steps; }
  [[gnu::always_inline]] void step() {
    for (std::int64_t i = 0; i < per_step_ && current_ < count_; ++i) {
      Span& span = spans_[current_];
      __builtin_prefetch(span.at, 0, 2);
      span.at += 64;
      if (span.at >= span.end) ++current_;
    }
  }

 private:
  struct Span {
    const std::uint8_t *at, *end;
  };
  Span spans_[4] = {};  ///< codes, their high bits, scales, minima
  int count_ = 0, current_ = 0;
  std::int64_t lines_ = 0, per_step_ = 0;
};

/// One block of K of a panel, times one tile of rows.
struct ExactUnit {
  ExactScratch& own;
  const std::int8_t* rows;
  std::int64_t row_bytes;
  const float* row_scales;  ///< per 32: [16], of which the tile's come first
  const void* offsets;      ///< floats of the first row, per group: what its minimum is multiplied by
  std::int64_t row_offsets;
  std::int64_t groups;
  int lanes;  ///< 16, or 0 in the first block: how many totals are read
  ExactAhead& ahead;
};

/// Begins the product of group `g`: zero, rows, weights, products; kTurn is g % 4. GCC's intrinsics take literals.
template <int kTurn>
[[gnu::always_inline]] inline void exact_load_rows(const std::int8_t* rows, std::int64_t row_bytes) {
  tile_barrier();
  if constexpr (kTurn == 0) _tile_zero(0);
  if constexpr (kTurn == 1) _tile_zero(1);
  if constexpr (kTurn == 2) _tile_zero(2);
  if constexpr (kTurn == 3) _tile_zero(3);
  if constexpr (kTurn % 2 == 0)
    _tile_loadd(4, rows, row_bytes);
  else
    _tile_loadd(5, rows, row_bytes);
  tile_barrier();
}
template <int kTurn>
[[gnu::always_inline]] inline void exact_load_weights(const std::uint8_t* codes) {
  tile_barrier();
  if constexpr (kTurn % 2 == 0)
    _tile_loadd(6, codes, 64);
  else
    _tile_loadd(7, codes, 64);
  tile_barrier();
}
template <int kTurn>
[[gnu::always_inline]] inline void exact_multiply() {
  if constexpr (kTurn == 0) _tile_dpbssd(0, 4, 6);
  if constexpr (kTurn == 1) _tile_dpbssd(1, 5, 7);
  if constexpr (kTurn == 2) _tile_dpbssd(2, 4, 6);
  if constexpr (kTurn == 3) _tile_dpbssd(3, 5, 7);
}
template <int kTurn>
[[gnu::always_inline]] inline void exact_store(float* sums) {
  tile_barrier();
  if constexpr (kTurn == 0) _tile_stored(0, sums, 64);
  if constexpr (kTurn == 1) _tile_stored(1, sums, 64);
  if constexpr (kTurn == 2) _tile_stored(2, sums, 64);
  if constexpr (kTurn == 3) _tile_stored(3, sums, 64);
  tile_barrier();
}

template <int kHeight, int kGroup, bool kMin>
class ExactTile {
 public:
  explicit ExactTile(const ExactUnit& unit) : unit_(unit) {}

  /// `totals`: [kHeight][16], to which the block's products are added.
  [[gnu::always_inline]] void run(float* totals) {
    F32 sum[kHeight];
#pragma GCC unroll 16
    for (int r = 0; r < kHeight; ++r) sum[r] = load_n(totals + kPanel * r, unit_.lanes);
    begin<0>(0), begin<1>(1), begin<2>(2);
    end<0>(0);
    begin<3>(3);
    end<1>(1);
    std::int64_t g = 0;
    for (; g + 8 <= unit_.groups; g += 4) four_steps<true>(g, sum);
    for (; g < unit_.groups; g += 4) four_steps<false>(g, sum);
#pragma GCC unroll 16
    for (int r = 0; r < kHeight; ++r) store(totals + kPanel * r, sum[r]);
  }

 private:
  static constexpr std::int64_t kCodeBytes = kGroup * kPanel;

  /// Where the sums of group `g` are kept.
  float* sums(std::int64_t g) const { return unit_.own.sums[g % kExactSums]; }
  F32 offset(std::int64_t r, std::int64_t g) const {
    float value;
    __builtin_memcpy(&value, static_cast<const std::byte*>(unit_.offsets) + 4 * (r * unit_.row_offsets + g), 4);
    return set1(value);
  }

  template <int kTurn, bool kExists = false>
  [[gnu::always_inline]] void load_rows(std::int64_t g) {
    if (kExists || g < unit_.groups) exact_load_rows<kTurn>(unit_.rows + kGroup * g, unit_.row_bytes);
  }
  template <int kTurn, bool kExists = false>
  [[gnu::always_inline]] void load_weights(std::int64_t g) {
    if (kExists || g < unit_.groups) exact_load_weights<kTurn>(unit_.own.codes + kCodeBytes * g);
  }
  template <int kTurn, bool kExists = false>
  [[gnu::always_inline]] void multiply(std::int64_t g) {
    if (kExists || g < unit_.groups) exact_multiply<kTurn>();
  }
  template <int kTurn>
  [[gnu::always_inline]] void begin(std::int64_t g) {
    load_rows<kTurn>(g), load_weights<kTurn>(g), multiply<kTurn>(g);
  }
  template <int kTurn, bool kExists = false>
  [[gnu::always_inline]] void end(std::int64_t g) {
    if (kExists || g < unit_.groups) exact_store<kTurn>(sums(g));
  }

  /// Adds a quarter of the rows of group `g`.
  template <int kQuarter>
  [[gnu::always_inline]] void scale(std::int64_t g, F32* sum) const {
    const F32 weights = load(unit_.own.scales + kPanel * g);
    const float* const dots = sums(g);
#pragma GCC unroll 16
    for (int r = kHeight * kQuarter / 4; r < kHeight * (kQuarter + 1) / 4; ++r) {
      const F32 x = set1(unit_.row_scales[16 * (g * kGroup / kScaleBlock) + r]);
      sum[r] = fma(to_f32(as_i32(load(dots + kPanel * r))), mul(weights, x), sum[r]);
      if constexpr (kMin) sum[r] = fma(load(unit_.own.minima + kPanel * g), offset(r, g), sum[r]);
    }
  }

  template <bool kExists>
  [[gnu::always_inline]] void four_steps(std::int64_t g, F32* sum) {
    step<0, kExists>(g, sum);
    step<1, kExists>(g + 1, sum);
    step<2, kExists>(g + 2, sum);
    step<3, kExists>(g + 3, sum);
  }
  /// Scales group `g`, and between its quarters begins g + 4 and stores g + 2. kExists: there are such groups.
  template <int kTurn, bool kExists>
  [[gnu::always_inline]] void step(std::int64_t g, F32* sum) {
    if (!kExists && g >= unit_.groups) return;
    load_rows<kTurn, kExists>(g + 4);
    scale<0>(g, sum);
    load_weights<kTurn, kExists>(g + 4);
    scale<1>(g, sum);
    multiply<kTurn, kExists>(g + 4);
    scale<2>(g, sum);
    end<(kTurn + 2) % 4, kExists>(g + 2);
    unit_.ahead.step();
    scale<3>(g, sum);
  }

  const ExactUnit unit_;
};

using ExactRun = void(const ExactUnit& unit, float* totals);
template <int kHeight, int kGroup, bool kMin>
[[gnu::noinline]] void exact_run(const ExactUnit& unit, float* totals) {
  ExactTile<kHeight, kGroup, kMin>(unit).run(totals);
}

/// What depends on the height of a tile and on the format.
struct ExactKernel {
  const TileConfig* config;
  ExactRun* run;
};
template <int kHeight>
ExactKernel exact_kernel_of(const PackedFormat& format) {
  if (format.group == 16)
    return {&kExactConfig<kHeight, 16>, format.has_min ? exact_run<kHeight, 16, true> : exact_run<kHeight, 16, false>};
  return {&kExactConfig<kHeight, 32>, format.has_min ? exact_run<kHeight, 32, true> : exact_run<kHeight, 32, false>};
}
inline ExactKernel exact_kernel(const PackedFormat& format, std::int64_t height) {
  switch (height) {
    case 10:
      return exact_kernel_of<10>(format);
    case 12:
      return exact_kernel_of<12>(format);
    case 14:
      return exact_kernel_of<14>(format);
    default:
      return exact_kernel_of<16>(format);
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
  for (std::int64_t g = 0; g < groups; ++g, codes += code_bytes(kCodes), high += high_bytes(kCodes), out += 512)
#pragma GCC unroll 8
    for (int quad = 0; quad < 8; ++quad)
      _mm512_storeu_si512(out + 64 * quad, _mm512_sub_epi8(pair_codes<kCodes>(codes, high, quad), zero));
#else
  unpack_codes(kCodes, layout, panel, first, groups, out);
  for (std::int64_t i = 0; i < groups * 512; ++i) out[i] = static_cast<std::uint8_t>(out[i] - format.zero);
#endif
}
using ExactCodes = void(const PackedFormat& format, const PackedLayout& layout, const std::uint8_t* panel,
                        std::int64_t first, std::int64_t groups, std::uint8_t* out);

/// Rows [first, first + count) of a product, 16 to kExactMostRows of them, times outputs [n, n_end), at most
/// kExactMostPanels panels.
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
        height_(((count + tiles_ - 1) / tiles_ + 1) / 2 * 2),
        kernel_(exact_kernel(format_, height_)),
        codes_(with_codes(format_, []<Codes kCodes, bool>() -> ExactCodes* { return exact_codes<kCodes>; })) {
    _tile_loadconfig(kernel_.config);
  }

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
  std::int64_t scales_from(std::int64_t tile) const { return row_of(tile) < count_ - 16 ? row_of(tile) : count_ - 16; }

  /// Scales of block k0 of all rows, as tiles read them.
  void arrange_scales(std::int64_t k0) {
    const std::int64_t groups = block_length(k0) / kScaleBlock, row_groups = args_.k / kScaleBlock;
    for (std::int64_t t = 0; t < tiles_; ++t) {
      const float* const from = args_.quantized.scales + (first_ + scales_from(t)) * row_groups + k0 / kScaleBlock;
      std::int64_t g = 0;
      for (; g + 16 <= groups; g += 16)
        transpose16(reinterpret_cast<const std::uint32_t*>(from + g), row_groups,
                    reinterpret_cast<std::uint32_t*>(own_.row_scales[t][g]));
      for (; g < groups; ++g)
        for (std::int64_t r = 0; r < 16; ++r) own_.row_scales[t][g][r] = from[r * row_groups + g];
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
                              .groups = groups,
                              .lanes = k0 == 0 ? 0 : 16,
                              .ahead = ahead};
      kernel_.run(unit, totals[t]);
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
  const ExactKernel kernel_;
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
    const std::int64_t outputs = (count * args.k <= kExactResident ? 4 : kExactMostPanels) * kPanel;
    ExactChunk chunk(args, first, count, own);
    for (std::int64_t n = n_begin; n < n_end; n += outputs) chunk.run(n, n_end - n < outputs ? n_end : n + outputs);
    _tile_release();
  }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
