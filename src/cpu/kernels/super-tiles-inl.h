#pragma once

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/tiles-inl.h"

// Compiled once for each kind of matrix tile (AMX, its emulation).
//
// The arithmetic `super` on matrix tiles (AMX, or tile_emulation.h): eight tiles of 16 rows of 64 bytes.
//
//   0 1 2 3  sums [16 outputs][16 rows]: panel a by plane hi, a by lo, b by hi, b by lo
//   4 5      weights of panels a and b, [16 outputs][64 k]
//   6 7      rows, planes hi and lo, [16 quads][16 rows][4 k]
//
// so that four loads feed four products (a product takes 16 cycles, a load from L1 8). A unit is a super-block of a
// pair of panels. Its nibbles are decoded once for all groups of rows, a step of 128 k ahead of the products of the
// first group (a tile load waits for pending stores) and between them: a product leaves the other ports idle. Sums are
// scaled a group later, for the same reason.
//
// Rows must come from L2: from beyond, a unit takes three times as long. If all rows fit there, a pair of panels is
// finished before the next one, and weights are read in sequence. If not, several pairs process a super-block before
// the next one, whose rows are prefetched meanwhile; totals are kept in scratch.

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr std::int64_t kChunkGroups = 16;          ///< groups of 16 rows of a chunk
constexpr std::int64_t kChunkPairs = kSuperPairs;  ///< pairs of panels of a chunk: 256 KiB of totals

/// Decoded steps of 128 k are kept until no group needs them: those of a unit, and the first of the following one. With
/// one group two are enough, and a smaller part of L1 is a quarter faster.
constexpr int kSlots = kSuperK / kSuperStep + 1;
constexpr std::int64_t kStepBytes = kSuperStep * kPanel;

using TileSums = float[4][kTileWords];

struct TileScratch {
  std::uint8_t tiles[kSlots][2][kStepBytes];               ///< decoded steps, by panel: [k / 64][16 outputs][64 k]
  TileSums sums[2];                                        ///< of two groups, alternating; the bits of integers
  float totals[kChunkPairs][kChunkGroups][2][kTileWords];  ///< [16 outputs][16 rows]
};
static_assert(sizeof(TileScratch) <= kLinearScratchBytes);

/// One super-block of a pair of panels.
struct TileUnit {
  const std::uint8_t* block[2];  ///< as stored
  std::int64_t kc;
  std::int64_t next;  ///< from `block` to the data needed after it, to be prefetched
  std::uint8_t (*tiles)[2][kStepBytes];
  int slot, slots;  ///< of its first decoded step; how many are used in turn

  std::uint8_t* decoded(std::int64_t step, int p) const {
    // Fewer than twice `slots`: a subtraction instead of a division.
    const std::int64_t at = slot + (slots == 2 ? step & 1 : step);
    return tiles[at < slots ? at : at - slots][p];
  }
  const std::uint8_t* weights(const SuperLayout& layout, std::int64_t step, int p) const {
    return layout.nibbles ? decoded(step, p) : block[p] + step * kStepBytes;
  }
  const float* scales(const SuperLayout& layout, int p) const {
    return reinterpret_cast<const float*>(block[p] + layout.block_bytes(kc) - 64);
  }
};

/// One step of a panel: addresses of its nibbles, and of the bytes that they are decoded to.
struct NibbleStep {
  const std::uint8_t *codes, *levels, *minima, *fifths;
  std::uint8_t* to;
  std::int64_t next;  ///< as of a unit

  NibbleStep(const SuperLayout& layout, const TileUnit& unit, int p, std::int64_t step)
      : codes(unit.block[p] + step * kPanel * 64),
        levels(unit.block[p] + layout.code_bytes(unit.kc) + step * kPanel * 8),
        minima(unit.block[p] + layout.minima_offset(unit.kc) + step * kPanel * 4),
        fifths(unit.block[p] + layout.fifths_offset(unit.kc) + step * kPanel * 16),
        to(unit.decoded(step, p)),
        next(unit.next) {}

  /// Four outputs.
  template <Nibbles kKind>
  [[gnu::always_inline]] void decode(int first) const {
#pragma GCC unroll 4
    for (int n = first; n < first + 4; ++n) {
      std::uint16_t offsets[4];
      __builtin_memcpy(offsets, levels + 8 * n, sizeof offsets);
      decode_nibbles<kKind>(codes + 64 * n, offsets, kSuperTables.bytes, minima + 4 * n, fifths + 16 * n, to + 64 * n,
                            to + kTileBytes + 64 * n);
      __builtin_prefetch(codes + next + 64 * n, 0, 2);
    }
    if (first == 0) __builtin_prefetch(levels + next, 0, 2);
    if (first == 4) __builtin_prefetch(levels + next + 64, 0, 2);
    if (kKind != Nibbles::kPlain && first == 8) __builtin_prefetch(minima + next, 0, 2);
    if (kKind == Nibbles::kFives) __builtin_prefetch(fifths + next + 16 * first, 0, 2);
  }
};

/// The sums of a unit and a group that are not yet in the group's totals.
struct UnscaledSums {
  const TileSums* sums = nullptr;  ///< null: there are none
  const float* scales[2] = {};     ///< of the unit's panels
  const float* row_scales = nullptr;
  float (*totals)[kTileWords] = nullptr;
  bool first = false;  ///< super-block: the totals begin with zero
};

/// Eight outputs of one panel of them. The addresses are computed once for all eight.
struct UnscaledOutputs {
  const float *high, *low, *scales;
  float* totals;
  F32 x;
  int lanes;  ///< 0 or 16: how many totals are read; none before the first super-block

  UnscaledOutputs(const UnscaledSums& of, int p, int n)
      : high((*of.sums)[2 * p] + 16 * n),
        low((*of.sums)[2 * p + 1] + 16 * n),
        scales(of.scales[p] + n),
        totals(of.totals[p] + 16 * n),
        x(load(of.row_scales)),
        lanes(of.first ? 0 : 16) {}

  [[gnu::always_inline]] void scale(int n) const {
    const I32 dot = add(shift_left<7>(as_i32(load(high + 16 * n))), as_i32(load(low + 16 * n)));
    float* const at = totals + 16 * n;
    store(at, fma(to_f32(dot), mul(set1(scales[n]), x), load_n(at, lanes)));
  }
};

inline void scale_all(const UnscaledSums& of) {
  for (int p = 0; p < 2; ++p)
    for (int n = 0; n < kPanel; n += 8) {
      const UnscaledOutputs eight(of, p, n);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) eight.scale(i);
    }
}

/// What is done between the products of a unit and a group of rows, besides scaling the sums of those before.
enum class Between {
  kNothing,
  kDecode,  ///< of the first group: decodes the unit's next step, at its end the first one of the following unit
  kFetch,   ///< of the first group: prefetches the data of the following unit, whose weights are bytes
};

/// One group of rows of activations: the planes of their codes, and rows to prefetch, kc / 16 lines.
struct TileRows {
  const std::int8_t *high, *low, *ahead;
};

/// Steps [0, kc / 128) of one group of rows; sums are left in `to`.
/// kScaled: `before` is scaled meanwhile, an output between two products; the super-block is whole.
template <Between kBetween, Nibbles kKind, bool kScaled>
[[gnu::noinline]] void tile_steps(const SuperLayout& layout, const TileUnit& unit, const TileUnit* following,
                                  const TileRows& rows, const UnscaledSums& before, TileSums& to) {
  const std::int8_t *const high = rows.high, *const low = rows.low, *ahead = rows.ahead;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const std::int64_t steps = unit.kc / kSuperStep;
  for (std::int64_t step = 0; step < steps; ++step) {
    const TileUnit* const decoded = step + 1 < steps ? &unit : following;
    [[maybe_unused]] const auto unscaled = [&] {
      if constexpr (kScaled)
        return UnscaledOutputs(before, static_cast<int>(step) / 2, static_cast<int>(step) % 2 * 8);
      else
        return nullptr;
    }();
    const std::uint8_t *a = unit.weights(layout, step, 0), *b = unit.weights(layout, step, 1);
    const std::uint8_t* fetched[2] = {unit.block[0] + unit.next, unit.block[1] + unit.next};
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const std::int64_t at = (step * kSuperStep + 64 * half) * kPanel;
      const NibbleStep nibbles(layout, decoded != nullptr ? *decoded : unit, half, decoded == &unit ? step + 1 : 0);
      const auto between = [&](int quarter) __attribute__((always_inline)) {
        if constexpr (kBetween == Between::kDecode)
          if (decoded != nullptr) nibbles.decode<kKind>(4 * quarter);
        if constexpr (kBetween == Between::kFetch)
#pragma GCC unroll 8
          for (int line = 0; line < 8; ++line)
            __builtin_prefetch(fetched[line / 4] + at + (4 * quarter + line % 4) * 64, 0, 2);
        if (ahead != nullptr) __builtin_prefetch(ahead, 0, 2), ahead += 64;
        if constexpr (kScaled) unscaled.scale(4 * half + quarter);
      };
      tile_barrier();
      _tile_loadd(4, a + kTileBytes * half, 64);
      _tile_loadd(6, high + at, 64);
      _tile_dpbssd(0, 4, 6);
      between(0);
      _tile_loadd(7, low + at, 64);
      _tile_dpbssd(1, 4, 7);
      between(1);
      _tile_loadd(5, b + kTileBytes * half, 64);
      _tile_dpbssd(2, 5, 6);
      between(2);
      _tile_dpbssd(3, 5, 7);
      between(3);
    }
  }
  _tile_stored(0, to[0], 64);
  _tile_stored(1, to[1], 64);
  _tile_stored(2, to[2], 64);
  _tile_stored(3, to[3], 64);
  tile_barrier();
}

template <Between kBetween, Nibbles kKind = Nibbles::kPlain>
void tile_products(const SuperLayout& layout, const TileUnit& unit, const TileUnit* following, const TileRows& rows,
                   const UnscaledSums& before, TileSums& to) {
  if (before.sums != nullptr && unit.kc == kSuperK)
    return tile_steps<kBetween, kKind, true>(layout, unit, following, rows, before, to);
  if (before.sums != nullptr) scale_all(before);
  tile_steps<kBetween, kKind, false>(layout, unit, following, rows, before, to);
}

/// Writes a group's totals, [16 outputs][16 rows], to the existing rows of `out`.
inline void store_totals(const LinearArgs& args, const float* totals, std::int64_t group, std::int64_t n, int columns) {
  alignas(64) float rows[kTileWords];
  transpose16(reinterpret_cast<const std::uint32_t*>(totals), 16, reinterpret_cast<std::uint32_t*>(rows));
  const std::int64_t begin = args.super_rows.first_row;
  const F32 bias = args.bias == nullptr ? set1(0.f) : load_n(args.bias + n, columns);
  for (std::int64_t m = 0; m < kSuperRows; ++m) {
    const std::int64_t row = group * kSuperRows + m - begin;
    if (row < 0 || row >= args.rows) continue;
    const F32 sum = load(rows + 16 * m);
    store_n(args.out + row * args.out_stride + (n - args.out_origin), args.bias == nullptr ? sum : add(sum, bias),
            columns);
  }
}

/// Groups [first, last) of rows times outputs [n, n_end), at most kChunkPairs pairs of panels.
class TileChunk {
 public:
  TileChunk(const LinearArgs& args, std::int64_t n, std::int64_t n_end, std::int64_t first, std::int64_t last,
            bool resident, TileScratch& own)
      : args_(args),
        layout_(*args.panels.super),
        panels_(args.panels.data + n / kPanel * layout_.bytes),
        n_(n),
        n_end_(n_end),
        count_((n_end - n + kPanel - 1) / kPanel),
        first_(first),
        last_(last),
        resident_(resident),
        own_(own) {}

  void run() {
    if (!layout_.nibbles)
      run_units<Between::kFetch, Nibbles::kPlain>();
    else if (layout_.fives)
      run_units<Between::kDecode, Nibbles::kFives>();
    else if (layout_.minima)
      run_units<Between::kDecode, Nibbles::kMinima>();
    else
      run_units<Between::kDecode, Nibbles::kPlain>();
    // Rows of `out` are on different pages: all of a group's outputs together.
    for (std::int64_t group = first_; group < last_; ++group)
      for (std::int64_t panel = 0; panel < count_; ++panel) {
        const std::int64_t at = n_ + panel * kPanel;
        store_totals(args_, own_.totals[panel / 2][group - first_][panel % 2], group, at,
                     static_cast<int>(n_end_ - at < kPanel ? n_end_ - at : kPanel));
      }
  }

 private:
  struct Place {
    std::int64_t s = 0;       ///< super-block
    std::int64_t offset = 0;  ///< of it, in a panel
    std::int64_t panel = 0;
  };

  bool advance(Place& place) const {
    place.panel += 2;
    if (place.panel < count_) return true;
    place.offset += layout_.block_bytes(super_block_k(args_.k, place.s));
    place.panel = 0;
    return ++place.s < super_blocks(args_.k);
  }

  static int slot_after(const TileUnit& unit) {
    return static_cast<int>((unit.slot + unit.kc / kSuperStep) % unit.slots);
  }

  TileUnit unit_at(const Place& place, int slot) const {
    TileUnit unit = {};
    unit.kc = super_block_k(args_.k, place.s);
    unit.tiles = own_.tiles;
    unit.slot = slot;
    unit.slots = last_ - first_ == 1 ? 2 : kSlots;
    for (int p = 0; p < 2; ++p) {
      // With an odd number of panels the last is used twice.
      const std::int64_t own_panel = place.panel + p < count_ ? place.panel + p : place.panel;
      unit.block[p] = panels_ + own_panel * layout_.bytes + place.offset;
    }
    Place next = place;
    // After the chunk's last unit: the beginning of the following chunk.
    unit.next = advance(next) ? (next.panel - place.panel) * layout_.bytes + next.offset - place.offset
                              : (count_ - place.panel) * layout_.bytes - place.offset;
    return unit;
  }

  template <Between kBetween, Nibbles kKind>
  void run_units() {
    Place place;
    TileUnit unit = unit_at(place, 0);
    if constexpr (kBetween == Between::kDecode)
      for (int p = 0; p < 2; ++p)
        for (int n = 0; n < kPanel; n += 4) NibbleStep(layout_, unit, p, 0).decode<kKind>(n);
    for (;;) {
      Place next = place;
      const bool more = advance(next);
      const TileUnit following = more ? unit_at(next, slot_after(unit)) : TileUnit{};
      multiply<kBetween, kKind>(unit, place, more ? &following : nullptr);
      if (!more) break;
      unit = following, place = next;
    }
    scale_all(unscaled_);
  }

  template <Between kBetween, Nibbles kKind>
  void multiply(const TileUnit& unit, const Place& place, const TileUnit* following) {
    const SuperRows& x = args_.super_rows;
    for (std::int64_t group = first_; group < last_; ++group) {
      const TileRows rows = {x.plane(args_.k, group, place.s, 0), x.plane(args_.k, group, place.s, 1),
                             rows_ahead(place, group)};
      if (place.s + 1 == super_blocks(args_.k)) expect_output(group, n_ + place.panel * kPanel);
      TileSums& sums = own_.sums[turn_];
      if (group > first_)
        tile_products<Between::kNothing>(layout_, unit, following, rows, unscaled_, sums);
      else
        tile_products<kBetween, kKind>(layout_, unit, following, rows, unscaled_, sums);
      unscaled_ = {.sums = &sums,
                   .scales = {unit.scales(layout_, 0), unit.scales(layout_, 1)},
                   .row_scales = x.scale(args_.k, group, place.s),
                   .totals = own_.totals[place.panel / 2][group - first_],
                   .first = place.s == 0};
      turn_ ^= 1;
    }
  }

  /// Brings the lines to which a group's outputs [n, n + 32) will be written into L2. (GCC removes calls of functions
  /// that only prefetch.)
  [[gnu::always_inline]] void expect_output(std::int64_t group, std::int64_t n) const {
    const std::int64_t row = group * kSuperRows - args_.super_rows.first_row;
    for (std::int64_t m = row < 0 ? 0 : row; m < row + kSuperRows && m < args_.rows; ++m) {
      const float* const at = args_.out + m * args_.out_stride + (n - args_.out_origin);
      __builtin_prefetch(at, 1, 2);
      if (n + kPanel < n_end_) __builtin_prefetch(at + kPanel, 1, 2);
    }
  }

  /// The share of this pair in the group's rows of the next super-block, or null if they need not be prefetched.
  const std::int8_t* rows_ahead(const Place& place, std::int64_t group) const {
    if (resident_) return nullptr;
    const std::int64_t next = place.s + 1 < super_blocks(args_.k) ? place.s + 1 : 0;
    const std::int64_t share = super_block_k(args_.k, place.s) * 4;
    return args_.super_rows.plane(args_.k, group, next, 0) + place.panel / 2 * share;
  }

  const LinearArgs& args_;
  const SuperLayout& layout_;
  const std::uint8_t* const panels_;
  const std::int64_t n_, n_end_, count_, first_, last_;
  const bool resident_;  ///< the rows are in L2
  TileScratch& own_;
  UnscaledSums unscaled_;
  int turn_ = 0;  ///< which sums come next
};

void super_tiles_linear(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  auto& own = *static_cast<TileScratch*>(scratch);
  const std::int64_t first = args.super_rows.first_row / kSuperRows;
  const std::int64_t last = (args.super_rows.first_row + args.rows + kSuperRows - 1) / kSuperRows;
  const bool resident = (last - first) * SuperRows::group_bytes(args.k) <= kResidentRows;
  // A super-block of a single group stays in L1 while some pairs are multiplied with it.
  const std::int64_t pairs = !resident ? kChunkPairs : last - first == 1 ? kChunkPairs / 2 : 1;
  const std::int64_t outputs = pairs * 2 * kPanel;
  _tile_loadconfig(&kTileConfig);
  for (std::int64_t n = n_begin; n < n_end; n += outputs)
    for (std::int64_t group = first; group < last; group += kChunkGroups)
      TileChunk(args, n, n_end - n < outputs ? n_end : n + outputs, group,
                group + kChunkGroups < last ? group + kChunkGroups : last, resident, own)
          .run();
  _tile_release();
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
