#pragma once

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/super-inl.h"

// The arithmetic `super` in dot products of four bytes: a super-block of a panel is decoded to bytes [k / 4][16
// outputs][4 k] in scratch and multiplied by the two planes of the rows. In the scalar set this defines what the other
// kernels must compute.

namespace dllm::cpu::DLLM_ISA {
namespace {

/// Scratch of a worker.
struct SuperScratch {
  std::uint8_t tiles[kPanel * kSuperK];  ///< [k / 64][16 outputs][64 k]: w8
  std::uint8_t quads[kPanel * kSuperK];  ///< [k / 4][16 outputs][4 k]: w8 + 128
};
static_assert(sizeof(SuperScratch) <= kLinearScratchBytes);

void super_quads(const std::uint8_t* tiles, std::int64_t kc, std::uint8_t* quads) {
  for (std::int64_t k = 0; k < kc; k += 64)
    transpose16(reinterpret_cast<const std::uint32_t*>(tiles + k * kPanel), 16,
                reinterpret_cast<std::uint32_t*>(quads + k * kPanel));
  for (std::int64_t i = 0; i < kc * kPanel; ++i) quads[i] ^= 0x80;
}

/// One super-block of a panel times rows of one group.
struct SuperTask {
  const std::uint8_t* quads;
  const float* weight_scales;
  std::int64_t kc;
  const std::int8_t* planes[kSuperPlanes];  ///< of the first row
  const std::int32_t* sums[kSuperPlanes];
  const float* scales;
};

template <int kRows>
inline void super_rows(const SuperTask& task, F32* total) {
  constexpr std::int32_t kZero = 128 - kDotBias<true>;
  const std::uint8_t* w = task.quads;
  const std::int8_t *x0 = task.planes[0], *x1 = task.planes[1];
  I32 high[kRows], low[kRows];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
    high[m] = set1(-kZero * task.sums[0][m]);
    low[m] = set1(-kZero * task.sums[1][m]);
  }
  for (std::int64_t quad = 0; quad < task.kc / 4; ++quad, w += 64, x0 += 64, x1 += 64) {
    const U8 weights = load_bytes(w);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      std::int32_t four;
      __builtin_memcpy(&four, x0 + 4 * m, 4);
      high[m] = dot4<true>(high[m], weights, four);
      __builtin_memcpy(&four, x1 + 4 * m, 4);
      low[m] = dot4<true>(low[m], weights, four);
    }
  }
  const F32 scale = load(task.weight_scales);
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m)
    total[m] = fma(to_f32(add(shift_left<7>(high[m]), low[m])), mul(scale, set1(task.scales[m])), total[m]);
}

template <int kRows>
inline void super_tail(const SuperTask& task, int rows, F32* total) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return super_rows<kRows>(task, total);
    super_tail<kRows - 1>(task, rows, total);
  }
}

/// Super-block `s` of a panel times all rows.
void super_block(const LinearArgs& args, const std::uint8_t* quads, const float* weight_scales, std::int64_t s,
                 std::int64_t n, int columns) {
  const SuperRows& x = args.super_rows;
  const auto tile = [&](std::int64_t row, int count, F32* total) {
    const std::int64_t group = row / kSuperRows, lane = row % kSuperRows;
    const SuperTask task{quads,
                         weight_scales,
                         super_block_k(args.k, s),
                         {x.plane(args.k, group, s, 0) + 4 * lane, x.plane(args.k, group, s, 1) + 4 * lane},
                         {x.sum(args.k, group, s, 0) + lane, x.sum(args.k, group, s, 1) + lane},
                         x.scale(args.k, group, s) + lane};
    super_tail<kSuperTile>(task, count, total);
  };
  for_each_super_tile(args, s, x.first_row, x.first_row + args.rows, n, columns, tile);
}

void super_linear(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  auto& own = *static_cast<SuperScratch*>(scratch);
  const SuperLayout& layout = *args.panels.super;
  for (std::int64_t n = n_begin; n < n_end; n += kPanel) {
    const int columns = static_cast<int>(n_end - n < kPanel ? n_end - n : kPanel);
    const std::uint8_t* block = args.panels.data + n / kPanel * layout.bytes;
    for (std::int64_t s = 0; s < super_blocks(args.k); ++s) {
      const std::int64_t kc = super_block_k(args.k, s), size = layout.block_bytes(kc);
      super_quads(super_tiles(layout, block, kc, own.tiles), kc, own.quads);
      super_block(args, own.quads, reinterpret_cast<const float*>(block + size - 64), s, n, columns);
      block += size;
    }
  }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
