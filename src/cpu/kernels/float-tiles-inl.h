#pragma once

#include "cpu/kernels/half_parts-inl.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/tiles-inl.h"

// Compiled once for each kind of matrix tile (AMX, its emulation).
//
// BF16 and F16 weights in the arithmetic `super` on matrix tiles (AMX-BF16, or tile_emulation.h): eight tiles of 16
// rows of 64 bytes.
//
//   0 1 2 3  sums [16 rows][16 outputs]: group a by panel p, a by q, group b by p, b by q
//   4 5      rows of groups a and b, [16 rows][32 k]
//   6 7      weights of panels p and q, [16 pairs of k][16 outputs][2]
//
// so that four loads feed four products. A step of 32 k is one product per tile of sums, which adds the step's two
// chains to the sum: sums stay in tiles, or in scratch between blocks of K, and are never scaled.
//
// F16: three products per step and tile of sums (rests of weights by first parts of rows, high parts by first, high by
// second), for which eight loads suffice, because each pair of products has one operand in common. The first groups
// split weights into scratch, step by step, so that the processor can split the next step while tiles multiply.
//
// BF16, up to two groups of rows: a pair of panels is multiplied with all of K, as its weights come from memory once.
// Otherwise: blocks of 256 k, whose weights (16 KiB of a pair of panels, 32 KiB if split) stay in L1 while the groups
// pass, two at a time. Rows must come from L2: if they do not fit there, several pairs share a block of all rows.

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr std::int64_t kBf16Block = 256;             ///< K of a block
constexpr std::int64_t kBf16Groups = 16;             ///< of a chunk
constexpr std::int64_t kBf16Pairs = kSuperPairs;     ///< of a chunk: 256 KiB of sums
constexpr std::int64_t kBf16Ahead = 8 * kTileBytes;  ///< from the weights of a step to those to be prefetched

struct FloatTileScratch {
  float sums[kBf16Pairs][kBf16Groups][2][kTileWords];            ///< [16 rows][16 outputs]
  std::uint8_t parts[2][kBf16Block / kBf16Step][2][kTileBytes];  ///< F16: of a block of a pair of panels, high and rest
};
static_assert(sizeof(FloatTileScratch) <= kLinearScratchBytes);

/// Some steps of K of one or two panels.
struct FloatUnit {
  const std::uint8_t* weights[2];
  std::uint8_t (*parts[2])[2][kTileBytes];  ///< of F16 weights, per step
  std::int64_t steps;
  bool first;  ///< of the sums
};

inline void fetch_tile(const std::uint8_t* weights) {
#pragma GCC unroll 16
  for (int line = 0; line < 16; ++line) __builtin_prefetch(weights + kBf16Ahead + 64 * line, 0, 2);
}

/// The tiles of a step's high parts and of its rests, from [32 k][16 outputs] of F16.
inline void split_tile(const std::uint8_t* weights, std::uint8_t (&parts)[2][kTileBytes]) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(weights);
  const I32 low = set1(std::int32_t{0xffff});
  const auto pair = [&](I32 even, I32 odd) { return as_f32(add(bit_and(shift_right<16>(even), low), odd)); };
  for (std::int64_t i = 0; i < kTileWords; i += kPanel, from += 2 * kPanel) {
    const HalfParts even = half_parts(from), odd = half_parts(from + kPanel);
    store(reinterpret_cast<float*>(parts[0]) + i, pair(even.high, odd.high));
    store(reinterpret_cast<float*>(parts[1]) + i, pair(as_i32(even.rest), as_i32(odd.rest)));
  }
}

/// The products of tiles of rows and of weights, once they are loaded.
template <int kGroups, int kPanels>
inline void multiply_tiles() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kPanels == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kGroups == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (kGroups == 2 && kPanels == 2) _tile_dpbf16ps(3, 5, 7);
}

struct Bf16Tiles {
  static constexpr RowForm kForm = RowForm::kTiles;
  static constexpr std::int64_t kRowBytes = kTileBytes;  ///< of a step
  template <int kGroups, int kPanels, bool kFirst>
  static void step(const FloatUnit& unit, std::int64_t step, const std::uint8_t* a, const std::uint8_t* b) {
    const std::uint8_t *p = unit.weights[0] + step * kTileBytes, *q = unit.weights[1] + step * kTileBytes;
    _tile_loadd(6, p, 64);
    _tile_loadd(4, a, 64);
    if constexpr (kPanels == 2) _tile_loadd(7, q, 64);
    if constexpr (kGroups == 2) _tile_loadd(5, b, 64);
    multiply_tiles<kGroups, kPanels>();
    if constexpr (kFirst) fetch_tile(p);
    if constexpr (kFirst && kPanels == 2) fetch_tile(q);
  }
};

struct F16Tiles {
  static constexpr RowForm kForm = RowForm::kSplitTiles;
  static constexpr std::int64_t kRowBytes = 2 * kTileBytes;
  template <int kGroups, int kPanels, bool kFirst>
  static void step(const FloatUnit& unit, std::int64_t step, const std::uint8_t* a, const std::uint8_t* b) {
    auto &p = unit.parts[0][step], &q = unit.parts[1][step];
    if constexpr (kFirst) {
      for (int panel = 0; panel < kPanels; ++panel) {
        const std::uint8_t* const weights = unit.weights[panel] + step * kTileBytes;
        split_tile(weights, unit.parts[panel][step]);
        fetch_tile(weights);
      }
      tile_barrier();
    }
    _tile_loadd(6, p[1], 64);
    _tile_loadd(4, a, 64);
    if constexpr (kPanels == 2) _tile_loadd(7, q[1], 64);
    if constexpr (kGroups == 2) _tile_loadd(5, b, 64);
    multiply_tiles<kGroups, kPanels>();
    _tile_loadd(6, p[0], 64);
    if constexpr (kPanels == 2) _tile_loadd(7, q[0], 64);
    multiply_tiles<kGroups, kPanels>();
    _tile_loadd(4, a + kTileBytes, 64);
    if constexpr (kGroups == 2) _tile_loadd(5, b + kTileBytes, 64);
    multiply_tiles<kGroups, kPanels>();
  }
};

/// A unit times one or two groups of rows; sums are [group][panel].
template <class Tiles, int kGroups, int kPanels, bool kFirst>
inline void float_products(const FloatUnit& unit, const std::uint8_t* const (&rows)[2],
                           float (*const (&sums)[2])[kTileWords]) {
  tile_barrier();
  if (unit.first) {
    _tile_zero(0);
    if constexpr (kPanels == 2) _tile_zero(1);
    if constexpr (kGroups == 2) _tile_zero(2);
    if constexpr (kGroups == 2 && kPanels == 2) _tile_zero(3);
  } else {
    _tile_loadd(0, sums[0][0], 64);
    if constexpr (kPanels == 2) _tile_loadd(1, sums[0][1], 64);
    if constexpr (kGroups == 2) _tile_loadd(2, sums[1][0], 64);
    if constexpr (kGroups == 2 && kPanels == 2) _tile_loadd(3, sums[1][1], 64);
  }
  for (std::int64_t step = 0; step < unit.steps; ++step)
    Tiles::template step<kGroups, kPanels, kFirst>(unit, step, rows[0] + step * Tiles::kRowBytes,
                                                   rows[1] + step * Tiles::kRowBytes);
  _tile_stored(0, sums[0][0], 64);
  if constexpr (kPanels == 2) _tile_stored(1, sums[0][1], 64);
  if constexpr (kGroups == 2) _tile_stored(2, sums[1][0], 64);
  if constexpr (kGroups == 2 && kPanels == 2) _tile_stored(3, sums[1][1], 64);
  tile_barrier();
}

/// Groups [first, last) of rows times outputs [n, n_end), at most kBf16Pairs pairs of panels.
template <class Tiles>
class FloatChunk {
 public:
  FloatChunk(const LinearArgs& args, std::int64_t n, std::int64_t n_end, std::int64_t first, std::int64_t last,
             FloatTileScratch& own)
      : args_(args),
        n_(n),
        n_end_(n_end),
        panels_((n_end - n + kPanel - 1) / kPanel),
        first_(first),
        last_(last),
        own_(own) {}

  void run() {
    const std::int64_t block = last_ - first_ <= 2 && !in_parts(Tiles::kForm) ? args_.k : kBf16Block;
    for (std::int64_t k0 = 0; k0 < args_.k; k0 += block) {
      const std::int64_t kc = args_.k - k0 < block ? args_.k - k0 : block;
      for (std::int64_t panel = 0; panel < panels_; panel += 2) multiply(panel, k0, kc);
    }
    for (std::int64_t group = first_; group < last_; ++group)
      for (std::int64_t panel = 0; panel < panels_; ++panel) store_sums(group, panel);
  }

 private:
  const std::uint8_t* rows_at(std::int64_t group, std::int64_t k0) const {
    const float* const begin = args_.grouped.groups + group * group_stride(Tiles::kForm, args_.k);
    return reinterpret_cast<const std::uint8_t*>(begin) + k0 / kBf16Step * Tiles::kRowBytes;
  }

  void multiply(std::int64_t panel, std::int64_t k0, std::int64_t kc) {
    const std::uint8_t* const weights =
        args_.panels.data + (n_ / kPanel + panel) * args_.panels.layout->bytes + k0 / kBf16Step * kTileBytes;
    const bool two = panel + 1 < panels_;
    const FloatUnit unit{{weights, two ? weights + args_.panels.layout->bytes : weights},
                         {own_.parts[0], own_.parts[1]},
                         kc / kBf16Step,
                         k0 == 0};
    for (std::int64_t group = first_; group < last_; group += 2) {
      // The first groups split F16 weights, and bring those that come next along.
      const bool first = group == first_;
      if (two)
        first ? multiply_groups<2, true>(unit, panel, group, k0) : multiply_groups<2, false>(unit, panel, group, k0);
      else
        first ? multiply_groups<1, true>(unit, panel, group, k0) : multiply_groups<1, false>(unit, panel, group, k0);
    }
  }

  template <int kPanels, bool kFirst>
  void multiply_groups(const FloatUnit& unit, std::int64_t panel, std::int64_t group, std::int64_t k0) {
    const bool two = group + 1 < last_;
    const std::int64_t other = two ? group + 1 : group;
    const std::uint8_t* const rows[2] = {rows_at(group, k0), rows_at(other, k0)};
    auto& sums = own_.sums[panel / 2];
    float(*const to[2])[kTileWords] = {sums[group - first_], sums[other - first_]};
    if (two)
      float_products<Tiles, 2, kPanels, kFirst>(unit, rows, to);
    else
      float_products<Tiles, 1, kPanels, kFirst>(unit, rows, to);
  }

  /// Writes a tile of sums to the existing rows of `out`.
  void store_sums(std::int64_t group, std::int64_t panel) const {
    const std::int64_t n = n_ + panel * kPanel;
    const int columns = static_cast<int>(n_end_ - n < kPanel ? n_end_ - n : kPanel);
    const float* const sums = own_.sums[panel / 2][group - first_][panel % 2];
    const F32 bias = args_.bias == nullptr ? set1(0.f) : load_n(args_.bias + n, columns);
    for (std::int64_t m = 0; m < kSuperRows; ++m) {
      const std::int64_t row = group * kSuperRows + m - args_.grouped.first_row;
      if (row < 0 || row >= args_.rows) continue;
      const F32 sum = load(sums + 16 * m);
      store_n(args_.out + row * args_.out_stride + (n - args_.out_origin), args_.bias == nullptr ? sum : add(sum, bias),
              columns);
    }
  }

  const LinearArgs& args_;
  const std::int64_t n_, n_end_, panels_, first_, last_;
  FloatTileScratch& own_;
};

template <class Tiles>
void float_tiles_of(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  auto& own = *static_cast<FloatTileScratch*>(scratch);
  const std::int64_t first = args.grouped.first_row / kSuperRows;
  const std::int64_t last = (args.grouped.first_row + args.rows + kSuperRows - 1) / kSuperRows;
  const bool resident = (last - first) * group_stride(Tiles::kForm, args.k) * 4 <= kResidentRows;
  const std::int64_t outputs = (resident ? 1 : kBf16Pairs) * 2 * kPanel;
  _tile_loadconfig(&kTileConfig);
  for (std::int64_t n = n_begin; n < n_end; n += outputs)
    for (std::int64_t group = first; group < last; group += kBf16Groups)
      FloatChunk<Tiles>(args, n, n_end - n < outputs ? n_end : n + outputs, group,
                        group + kBf16Groups < last ? group + kBf16Groups : last, own)
          .run();
  _tile_release();
}

/// Outputs [n_begin, n_end), with rows in tiles.
void float_tiles_linear(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  if (args.grouped.form == RowForm::kTiles) return float_tiles_of<Bf16Tiles>(args, n_begin, n_end, scratch);
  float_tiles_of<F16Tiles>(args, n_begin, n_end, scratch);
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
