// No include guard: compiled once per instruction set.
//
// The arithmetic `super` (super.h) without tiles: a super-block of a panel is decoded to bytes [k / 4][16 outputs][4 k]
// in scratch and multiplied by the rows with the dot product of four bytes. In the scalar set this defines what tiles
// must compute.

namespace dllm::cpu::DLLM_ISA {
namespace {

#ifndef DLLM_WORD_PRODUCTS  // super-words-inl.h
/// Scratch of a worker.
struct SuperScratch {
  std::uint8_t tiles[kPanel * kSuperK];  ///< [k / 64][16 outputs][64 k]: w8
  std::uint8_t quads[kPanel * kSuperK];  ///< [k / 4][16 outputs][4 k]: w8 + 128
};
static_assert(sizeof(SuperScratch) <= kLinearScratchBytes);
#endif

/// w8 of a super-block at `block` as tiles: in place, or decoded to `to`.
inline const std::uint8_t* super_tiles(const SuperLayout& layout, const std::uint8_t* block, std::int64_t kc,
                                       std::uint8_t* to) {
  if (!layout.nibbles) return block;
  const std::uint8_t *levels = block + layout.code_bytes(kc), *minima = block + layout.minima_offset(kc),
                     *fifths = block + layout.fifths_offset(kc);
  for (std::int64_t step = 0; step < kc / kSuperStep; ++step)
    for (std::int64_t n = 0; n < kPanel; ++n) {
      const std::int64_t at = step * kPanel + n;
      std::uint16_t offsets[4];
      __builtin_memcpy(offsets, levels + 8 * at, sizeof offsets);
      std::uint8_t* low = to + (2 * step * kPanel + n) * 64;
      std::uint8_t* const high = low + kPanel * 64;
      const auto decode = [&]<Nibbles kKind>() {
        decode_nibbles<kKind>(block + 64 * at, offsets, kSuperTables.bytes, minima + 4 * at, fifths + 16 * at, low,
                              high);
      };
      if (layout.fives)
        decode.template operator()<Nibbles::kFives>();
      else if (layout.minima)
        decode.template operator()<Nibbles::kMinima>();
      else
        decode.template operator()<Nibbles::kPlain>();
    }
  return to;
}

#ifndef DLLM_WORD_PRODUCTS  // super-words-inl.h
[[maybe_unused]] void super_quads(const std::uint8_t* tiles, std::int64_t kc, std::uint8_t* quads) {
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

/// Super-block `s` of a panel times all rows; partial sums are kept in `out`.
void super_block(const LinearArgs& args, const std::uint8_t* quads, const float* weight_scales, std::int64_t s,
                 std::int64_t n, int columns) {
  constexpr int kTile = 4;  // two accumulators each
  const SuperRows& x = args.super_rows;
  const bool first = s == 0, last = s + 1 == super_blocks(args.k) && args.bias != nullptr;
  const F32 bias = last ? load_n(args.bias + n, columns) : set1(0.f);
  std::int64_t row = x.first_row;
  const std::int64_t end = x.first_row + args.rows;
  float* out = args.out + (n - args.out_origin);
  while (row < end) {
    const std::int64_t group = row / kSuperRows, lane = row % kSuperRows;
    std::int64_t count = end - row < kSuperRows - lane ? end - row : kSuperRows - lane;
    if (count > kTile) count = kTile;
    const SuperTask task{quads,
                         weight_scales,
                         super_block_k(args.k, s),
                         {x.plane(args.k, group, s, 0) + 4 * lane, x.plane(args.k, group, s, 1) + 4 * lane},
                         {x.sum(args.k, group, s, 0) + lane, x.sum(args.k, group, s, 1) + lane},
                         x.scale(args.k, group, s) + lane};
    F32 total[kTile];
    for (int m = 0; m < count; ++m) total[m] = first ? set1(0.f) : load_n(out + m * args.out_stride, columns);
    super_tail<kTile>(task, static_cast<int>(count), total);
    for (int m = 0; m < count; ++m) store_n(out + m * args.out_stride, last ? add(total[m], bias) : total[m], columns);
    row += count;
    out += count * args.out_stride;
  }
}

[[maybe_unused]] void super_linear(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
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

#endif

/// q of one row: 512 values, zeros beyond `kc`. Returns X.
inline float super_quantize(const float* x, std::int64_t kc, std::int8_t* high, std::int8_t* low, std::int32_t* sums) {
  const I32 magnitude = set1(std::int32_t{0x7fffffff});
  const F32 magic = set1(12582912.f);  // 1.5 * 2^23: adding it rounds to the nearest integer, ties to even
  I32 peak = set1(std::int32_t{0});
  // Compared as integers, absolute values order with NaN above infinity, so neither is missed.
  for (std::int64_t i = 0; i < kc; i += 16) peak = max(peak, bit_and(as_i32(load(x + i)), magnitude));
  const std::int32_t peak_bits = reduce_max(peak);
  float amax;
  __builtin_memcpy(&amax, &peak_bits, 4);
  const bool zero = amax < 0x1.0p-100f;  // its inverse overflows
  const F32 inverse = set1(zero ? 0.f : kSuperRowCodes / amax);
  const F32 most = set1(kSuperRowCodes), least = set1(-kSuperRowCodes);
  I32 sum_high = set1(std::int32_t{0}), sum_low = sum_high;
  for (std::int64_t i = 0; i < kc; i += 16) {
    // NaN becomes the lowest value here (the second operand wins), but is preserved in the scale.
    const F32 clamped = min(max(mul(load(x + i), inverse), least), most);
    const I32 q = sub(as_i32(add(clamped, magic)), as_i32(magic));
    const I32 h = shift_right<7>(add(q, set1(std::int32_t{64}))), l = sub(q, shift_left<7>(h));
    store_bytes(high + i, h);
    store_bytes(low + i, l);
    sum_high = add(sum_high, h);
    sum_low = add(sum_low, l);
  }
  sums[0] = reduce_add(sum_high);
  sums[1] = reduce_add(sum_low);
  return zero ? 0.f : amax / kSuperRowCodes;
}

void quantize_super(const float* x, std::int64_t k, std::int64_t count, std::int64_t group, std::int64_t s,
                    const SuperRows& to) {
  alignas(64) std::int8_t rows[kSuperPlanes][kSuperRows][kSuperK];
  const std::int64_t k0 = s * kSuperK, kc = k - k0 < kSuperK ? k - k0 : kSuperK, padded = super_block_k(k, s);
  for (std::int64_t row = 0; row < kSuperRows; ++row) {
    std::int64_t begin = 0;
    std::int32_t sums[kSuperPlanes] = {};
    float scale = 0.f;
    if (row < count) {
      scale = super_quantize(x + row * k + k0, kc, rows[0][row], rows[1][row], sums);
      begin = kc;
    }
    to.scale(k, group, s)[row] = scale;
    for (int p = 0; p < kSuperPlanes; ++p) {
      to.sum(k, group, s, p)[row] = sums[p];
      if (begin < padded) __builtin_memset(rows[p][row] + begin, 0, static_cast<std::size_t>(padded - begin));
    }
  }
  for (int p = 0; p < kSuperPlanes; ++p)
    for (std::int64_t i = 0; i < padded; i += 64)
      transpose16(reinterpret_cast<const std::uint32_t*>(rows[p][0] + i), kSuperK / 4,
                  reinterpret_cast<std::uint32_t*>(to.plane(k, group, s, p) + i * kSuperRows));
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
