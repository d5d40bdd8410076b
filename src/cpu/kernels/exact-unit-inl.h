#pragma once

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/tiles-inl.h"

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
// the sums must leave the tile for every group. A product, the store of its sums and vector instructions hardly overlap
// (Intel, family 6, model 167), so their times add up: 4.3, 4.1 and 8 ns of 16 rows and 16 outputs, and some of the
// loads, 15.5 ns together. It is so if nothing waits: a product is stored two groups after it began, read two groups
// later, and its pieces stand between the vector instructions (in a row: 19 ns). Rows as BF16, whose sums are floats
// already, need loads of twice the size: 20 ns. research/lab/performance.md has the figures of products and steps.

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr std::int64_t kExactTileRows = 12;   ///< least rows: of fewer, decoding takes longer than it saves
constexpr std::int64_t kExactBlock = 1024;    ///< K per block: codes as bytes and a tile of rows, 16 KiB of L1 each
constexpr std::int64_t kExactMostRows = 256;  ///< of a chunk
constexpr std::int64_t kExactMostPanels = 8;  ///< of a chunk: 128 KiB of totals
constexpr int kExactSums = 8;                 ///< groups whose sums wait at most, a power of two

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
/// Constant, as TileConfig says.
struct ExactConfigs {
  TileConfig of[2][17];  ///< [group of 16, of 32][height]
};
constexpr ExactConfigs kExactConfigs = [] {
  ExactConfigs configs;
  for (int group = 0; group < 2; ++group)
    for (int height = 1; height <= 16; ++height) configs.of[group][height] = exact_config(height, 16 << group);
  return configs;
}();

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
  std::int64_t last;  ///< row of the tile: of an odd height, the code's last row repeats it, and nothing reads its sums
  std::int64_t groups;
  int lanes;  ///< 16, or 0 in the first block: how many totals are read
  ExactAhead& ahead;
};

// The parts of a product. kTurn is the group's number modulo 4, which says the tiles: GCC's intrinsics take literals.
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
    const std::int64_t row = r + 1 == kHeight ? unit_.last : r;
    __builtin_memcpy(&value, static_cast<const std::byte*>(unit_.offsets) + 4 * (row * unit_.row_offsets + g), 4);
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

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
