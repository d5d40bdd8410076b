// No include guard: compiled once per set of tiles, over a policy's decode_nibbles() and vectors.
//
// The arithmetic `super` on matrix tiles (AMX, or tile_emulation.h): eight tiles of 16 rows of 64 bytes.
//
//   0 1 2 3  sums [16 outputs][16 rows]: panel a by plane hi, a by lo, b by hi, b by lo
//   4 5      weights of panels a and b, [16 outputs][64 k]
//   6 7      rows, planes hi and lo, [16 quads][16 rows][4 k]
//
// so that four loads feed four products (a product takes 16 cycles, a load from L1 8). Nibbles of a pair of panels are
// decoded once per super-block, for all groups of rows, while the first group is multiplied: one step ahead, since a
// tile load waits for pending stores. Sums are scaled a group later, for the same reason. A super-block of 256 rows
// (256 KiB) comes from L2, at four fifths of the rate from L1, provided that L2 need not hold all of x: so several
// pairs of panels process a super-block before the next one, and totals are kept in scratch.

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr std::int64_t kTileBytes = 1024, kTileWords = 256;
constexpr std::int64_t kChunkGroups = 16;  ///< groups of 16 rows of a chunk
constexpr std::int64_t kChunkPairs = 4;    ///< pairs of panels of a chunk: 128 KiB of totals

using TileSums = float[4][kTileWords];

struct TileScratch {
  std::uint8_t tiles[2][kPanel * kSuperK];                 ///< of a pair of panels: [k / 64][16 outputs][64 k]
  TileSums sums[2];                                        ///< of two groups, alternating; the bits of integers
  float totals[kChunkPairs][kChunkGroups][2][kTileWords];  ///< [16 outputs][16 rows]
};
static_assert(sizeof(TileScratch) <= kLinearScratchBytes);

/// Palette 1: eight tiles of 16 rows of 64 bytes. Constant, so that no store to it can be delayed or omitted (GCC 12
/// treats _tile_loadconfig as a read of eight bytes).
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
constexpr TileConfig kTileConfig;

/// GCC's tile loads and stores do not declare that they access memory.
inline void tile_barrier() { asm volatile("" ::: "memory"); }

/// One super-block of a pair of panels.
struct TilePair {
  const std::uint8_t* block[2];    ///< as stored
  const std::uint8_t* weights[2];  ///< tiles: in place, or decoded in scratch
  const float* scales[2];
  std::int64_t kc;
  std::int64_t next;  ///< from `block` to the data needed after it, to be prefetched
};

/// 128 k of both panels' nibbles.
inline void decode_step(const SuperLayout& layout, const TilePair& pair, std::int64_t step, TileScratch& own) {
  for (int p = 0; p < 2; ++p) {
    const std::uint8_t* codes = pair.block[p] + step * kPanel * 64;
    const std::uint8_t* levels = pair.block[p] + layout.code_bytes(pair.kc) + step * kPanel * 8;
    std::uint8_t* to = own.tiles[p] + 2 * step * kTileBytes;
#pragma GCC unroll 16
    for (int n = 0; n < kPanel; ++n) {
      std::uint16_t offsets[4];
      __builtin_memcpy(offsets, levels + 8 * n, sizeof offsets);
      decode_nibbles(codes + 64 * n, offsets, kSuperTables.bytes, to + 64 * n, to + kTileBytes + 64 * n);
      __builtin_prefetch(codes + pair.next + 64 * n);
    }
    __builtin_prefetch(levels + pair.next);
    __builtin_prefetch(levels + pair.next + 64);
  }
}

/// Steps [0, kc / 64) of one group of rows; sums are left in `to`.
template <bool kDecode>
inline void tile_products(const SuperLayout& layout, const TilePair& pair, const std::int8_t* high,
                          const std::int8_t* low, TileScratch& own, TileSums& to) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const std::uint8_t *a = pair.weights[0], *b = pair.weights[1];
  if constexpr (kDecode) decode_step(layout, pair, 0, own);
  for (std::int64_t k = 0; k < pair.kc; k += kSuperStep) {
    if constexpr (kDecode)
      if (k + kSuperStep < pair.kc) decode_step(layout, pair, k / kSuperStep + 1, own);
    tile_barrier();
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const std::int64_t at = (k + 64 * half) * kPanel;
      _tile_loadd(4, a + at, 64);
      _tile_loadd(6, high + at, 64);
      _tile_loadd(7, low + at, 64);
      _tile_loadd(5, b + at, 64);
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
  }
  _tile_stored(0, to[0], 64);
  _tile_stored(1, to[1], 64);
  _tile_stored(2, to[2], 64);
  _tile_stored(3, to[3], 64);
  tile_barrier();
}

/// The totals of a group, after one more super-block.
inline void add_sums(const TileSums& sums, const TilePair& pair, const float* row_scales, bool first,
                     float (&totals)[2][kTileWords]) {
  const F32 x = load(row_scales);
  for (int p = 0; p < 2; ++p)
#pragma GCC unroll 4
    for (int n = 0; n < kPanel; ++n) {
      const I32 dot = add(shift_left<7>(as_i32(load(sums[2 * p] + 16 * n))), as_i32(load(sums[2 * p + 1] + 16 * n)));
      float* at = totals[p] + 16 * n;
      store(at, fma(to_f32(dot), mul(set1(pair.scales[p][n]), x), first ? set1(0.f) : load(at)));
    }
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

/// A super-block `s` of the pair of panels at output n times groups [first, last) of rows.
inline void tile_block(const LinearArgs& args, const TilePair& pair, std::int64_t s, std::int64_t first,
                       std::int64_t last, TileScratch& own, float (*totals)[2][kTileWords]) {
  const SuperLayout& layout = *args.panels.super;
  const SuperRows& x = args.super_rows;
  const auto scale = [&](std::int64_t group) {
    add_sums(own.sums[group & 1], pair, x.scale(args.k, group, s), s == 0, totals[group - first]);
  };
  for (std::int64_t group = first; group < last; ++group) {
    const std::int8_t *high = x.plane(args.k, group, s, 0), *low = x.plane(args.k, group, s, 1);
    TileSums& sums = own.sums[group & 1];
    if (layout.nibbles && group == first)
      tile_products<true>(layout, pair, high, low, own, sums);
    else
      tile_products<false>(layout, pair, high, low, own, sums);
    if (group > first) scale(group - 1);
  }
  scale(last - 1);
}

/// Groups [first, last) of rows times outputs [n, n_end), at most kChunkPairs pairs of panels.
void tile_chunk(const LinearArgs& args, std::int64_t n, std::int64_t n_end, std::int64_t first, std::int64_t last,
                TileScratch& own) {
  const SuperLayout& layout = *args.panels.super;
  const std::uint8_t* const panels = args.panels.data + n / kPanel * layout.bytes;
  const std::int64_t count = (n_end - n + kPanel - 1) / kPanel, blocks = super_blocks(args.k);
  std::int64_t offset = 0;
  for (std::int64_t s = 0; s < blocks; ++s) {
    const std::int64_t kc = super_block_k(args.k, s), size = layout.block_bytes(kc);
    for (std::int64_t panel = 0; panel < count; panel += 2) {
      TilePair pair = {};
      pair.kc = kc;
      for (int p = 0; p < 2; ++p) {
        // With an odd number of panels the last is used twice.
        const std::int64_t own_panel = panel + p < count ? panel + p : panel;
        pair.block[p] = panels + own_panel * layout.bytes + offset;
        pair.scales[p] = reinterpret_cast<const float*>(pair.block[p] + size - 64);
        pair.weights[p] = layout.nibbles ? own.tiles[p] : pair.block[p];
      }
      // Prefetched meanwhile: the next pair's super-block, or the first pair's next one, or the following chunk.
      pair.next = panel + 2 < count ? 2 * layout.bytes
                  : s + 1 < blocks  ? size - panel * layout.bytes
                                    : (count - panel) * layout.bytes - offset;
      tile_block(args, pair, s, first, last, own, own.totals[panel / 2]);
    }
    offset += size;
  }
  for (std::int64_t panel = 0; panel < count; ++panel)
    for (std::int64_t group = first; group < last; ++group) {
      const std::int64_t at = n + panel * kPanel;
      store_totals(args, own.totals[panel / 2][group - first][panel % 2], group, at,
                   static_cast<int>(n_end - at < kPanel ? n_end - at : kPanel));
    }
}

void super_tiles_linear(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  constexpr std::int64_t kOutputs = kChunkPairs * 2 * kPanel;
  auto& own = *static_cast<TileScratch*>(scratch);
  const std::int64_t first = args.super_rows.first_row / kSuperRows;
  const std::int64_t last = (args.super_rows.first_row + args.rows + kSuperRows - 1) / kSuperRows;
  _tile_loadconfig(&kTileConfig);
  for (std::int64_t n = n_begin; n < n_end; n += kOutputs)
    for (std::int64_t group = first; group < last; group += kChunkGroups)
      tile_chunk(args, n, n_end - n < kOutputs ? n_end : n + kOutputs, group,
                 group + kChunkGroups < last ? group + kChunkGroups : last, own);
  _tile_release();
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
