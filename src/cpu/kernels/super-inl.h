#pragma once

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/packed-inl.h"

// The arithmetic `super` (super.h) without tiles: what its two kinds of products share (super-bytes-inl.h,
// super-words-inl.h), and the quantization of rows.

namespace dllm::cpu::DLLM_ISA {
namespace {

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

constexpr int kSuperTile = 4;

/// Rows [begin, end) by one super-block of outputs [n, n + columns): body(row, count, total) adds to the totals of at
/// most kSuperTile rows of one group. They are kept in `out` between super-blocks; after the last one they get the
/// bias.
template <class Body>
inline void for_each_super_tile(const LinearArgs& args, std::int64_t s, std::int64_t begin, std::int64_t end,
                                std::int64_t n, int columns, const Body& body) {
  const bool first = s == 0, biased = s + 1 == super_blocks(args.k) && args.bias != nullptr;
  const F32 bias = biased ? load_n(args.bias + n, columns) : set1(0.f);
  for (std::int64_t row = begin, count; row < end; row += count) {
    const std::int64_t in_tile = kSuperTile - row % kSuperTile;
    count = end - row < in_tile ? end - row : in_tile;
    float* const out = args.out + (row - args.super_rows.first_row) * args.out_stride + (n - args.out_origin);
    F32 total[kSuperTile];
    for (std::int64_t m = 0; m < count; ++m) total[m] = first ? set1(0.f) : load_n(out + m * args.out_stride, columns);
    body(row, static_cast<int>(count), total);
    for (std::int64_t m = 0; m < count; ++m)
      store_n(out + m * args.out_stride, biased ? add(total[m], bias) : total[m], columns);
  }
}

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
