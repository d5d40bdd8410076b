#pragma once

#include "cpu/kernels/float-steps-inl.h"
#include "cpu/kernels/floats-inl.h"
#include "cpu/kernels/kernel_set.h"
#ifdef DLLM_PAIR_TILES
#include "cpu/kernels/pair_blocks-inl.h"
#endif
#ifdef DLLM_PANEL_TILES
#include "cpu/kernels/panels-inl.h"
#endif
#ifdef DLLM_WORD_PRODUCTS
#include "cpu/kernels/super-words-inl.h"
#else
#include "cpu/kernels/super-bytes-inl.h"
#endif

// linear(): for each panel of 16 outputs, decode the weights into scratch memory, one block of K at a time, and
// multiply every row of x by the decoded block. Decoding costs about as much as 4 rows of x, so it becomes negligible
// beyond some 16 rows; and because a block has a fixed length, scratch fits L1/L2 for every K. Partial sums are kept in
// `out` between blocks. Sets with DLLM_PAIR_TILES or DLLM_PANEL_TILES process panels with pairs-inl.h or panels-inl.h
// instead, which decode in registers.
//
// Order of summation (the contract between the sets): over k ascending, one accumulator per output. The int8 family
// first sums a group of 16 or 32 products exactly in integers.

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr std::int64_t kFloatBlock = 512;  ///< K per block: rows 32 KiB + panel 32 KiB
constexpr std::int64_t kInt8Block = 1024;  ///< K per block: panel 16 KiB + scales and minima 8 KiB
static_assert(2 * kPanel * kFloatBlock * 4 <= std::int64_t{kLinearScratchBytes});
static_assert(kPanel * kInt8Block + 2 * kPanel * kInt8Block / 16 * 4 <= std::int64_t{kLinearScratchBytes});

/// One block of a panel of weights, ready for the micro-kernels.
struct Block {
  std::int64_t k0 = 0;
  std::int64_t kc = 0;
  const float* floats = nullptr;        ///< [kc][16]
  const std::uint8_t* bytes = nullptr;  ///< [kc / 4][16][4]
  const float* scale = nullptr;         ///< [kc / group][16]
  const float* min = nullptr;
  std::int32_t zero = 0;
};

template <int kRows>
inline void float_tile(const LinearArgs& args, const Block& block, std::int64_t row, F32* acc) {
  const float* x = args.plain.x + row * args.k + block.k0;
  const float* w = block.floats;
  F32 sum[kRows];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) sum[m] = acc[m];
  for (std::int64_t k = 0; k < block.kc; ++k, w += kPanel) {
    const F32 weights = load(w);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) sum[m] = fma(set1(x[m * args.k + k]), weights, sum[m]);
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) acc[m] = sum[m];
}

template <int kRows, int kGroup, bool kMin, bool kFull>
inline void int8_tile(const LinearArgs& args, const Block& block, std::int64_t row, F32* acc) {
  const QuantizedRows& q = args.quantized;
  const std::int8_t* a = q.values + row * q.stride + block.k0;
  const std::int64_t scale_stride = args.k / kScaleBlock, sum_stride = args.k / kSumBlock;
  const float* scales = q.scales + row * scale_stride + block.k0 / kScaleBlock;
  const std::int32_t* sums = q.sums + row * sum_stride + block.k0 / kSumBlock;
  const std::uint8_t* w = block.bytes;
  const std::int32_t zero = block.zero - kDotBias<kFull>;
  F32 total[kRows];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) total[m] = acc[m];
  for (std::int64_t g = 0; g < block.kc / kGroup; ++g) {
    I32 dot[kRows];
    std::int32_t sum[kRows];
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const std::int32_t* s = sums + m * sum_stride + g * (kGroup / 16);
      sum[m] = kGroup == 16 ? s[0] : s[0] + s[1];
      dot[m] = set1(-zero * sum[m]);
    }
#pragma GCC unroll 8
    for (int quad = 0; quad < kGroup / 4; ++quad, w += 4 * kPanel) {
      const U8 weights = load_bytes(w);
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        std::int32_t four;
        __builtin_memcpy(&four, a + m * q.stride + g * kGroup + 4 * quad, 4);
        dot[m] = dot4<kFull>(dot[m], weights, four);
      }
    }
    const F32 scale = load(block.scale + g * kPanel);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const float d = scales[m * scale_stride + g * kGroup / kScaleBlock];
      total[m] = fma(to_f32(dot[m]), mul(scale, set1(d)), total[m]);
      if constexpr (kMin) total[m] = fma(load(block.min + g * kPanel), set1(-d * static_cast<float>(sum[m])), total[m]);
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) acc[m] = total[m];
}

/// The micro-kernels of one family, as types, so that the loop over rows is written once.
struct FloatFamily {
  static constexpr int kTile = kFloatRows;
  template <int kRows>
  static void tile(const LinearArgs& args, const Block& block, std::int64_t row, F32* acc) {
    float_tile<kRows>(args, block, row, acc);
  }
};
template <int kGroup, bool kMin, bool kFull>
struct Int8Family {
  static constexpr int kTile = kInt8Rows;
  template <int kRows>
  static void tile(const LinearArgs& args, const Block& block, std::int64_t row, F32* acc) {
    int8_tile<kRows, kGroup, kMin, kFull>(args, block, row, acc);
  }
};

/// The tile for the last `rows` < Family::kTile rows; a template per count keeps the accumulators in registers.
template <class Family, int kRows>
inline void tail_tile(const LinearArgs& args, const Block& block, std::int64_t row, int rows, F32* acc) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return Family::template tile<kRows>(args, block, row, acc);
    tail_tile<Family, kRows - 1>(args, block, row, rows, acc);
  }
}

template <class Family>
void multiply_block(const LinearArgs& args, const Block& block, std::int64_t n, int columns) {
  float* out = args.out + (n - args.out_origin);
  const bool first = block.k0 == 0, last = block.k0 + block.kc == args.k;
  const F32 bias = last && args.bias != nullptr ? load_n(args.bias + n, columns) : set1(0.f);
  for (std::int64_t row = 0; row < args.rows; row += Family::kTile) {
    const int rows = static_cast<int>(args.rows - row < Family::kTile ? args.rows - row : Family::kTile);
    F32 acc[Family::kTile];
    for (int m = 0; m < rows; ++m) acc[m] = first ? set1(0.f) : load_n(out + (row + m) * args.out_stride, columns);
    if (rows == Family::kTile) {
      Family::template tile<Family::kTile>(args, block, row, acc);
    } else {
      tail_tile<Family, Family::kTile - 1>(args, block, row, rows, acc);
    }
    for (int m = 0; m < rows; ++m) {
      const F32 sum = last && args.bias != nullptr ? add(acc[m], bias) : acc[m];
      store_n(out + (row + m) * args.out_stride, sum, columns);
    }
  }
}

/// Decodes k0..k0+kc of one weight row to floats.
void decode_row(const LinearArgs& args, const std::byte* row, std::int64_t k0, std::int64_t kc, float* out) {
  const std::int64_t width = args.plain.type == TensorType::kF32 ? 4 : 2;
  switch (args.plain.type) {
    case TensorType::kF32:
      __builtin_memcpy(out, row + k0 * width, static_cast<std::size_t>(kc * width));
      return;
    case TensorType::kF16:
    case TensorType::kBF16:
      for (std::int64_t i = 0; i < kc; i += 16) {
        std::uint16_t words[16] = {};
        const std::int64_t count = kc - i < 16 ? kc - i : 16;
        if (count == 16) {
          __builtin_memcpy(words, row + (k0 + i) * width, 32);
        } else {
          __builtin_memcpy(words, row + (k0 + i) * width, static_cast<std::size_t>(count * width));
        }
        store(out + i, args.plain.type == TensorType::kF16 ? load_half(words) : load_bf16(words));
      }
      return;
    default:
      args.plain.dequantize(row + k0 / args.plain.block_elems * args.plain.block_bytes, out, kc);
  }
}

void linear_float(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  auto* rows = static_cast<float*>(scratch);  // [16][kFloatBlock]; contents beyond the data are never used
  float* panel = rows + kPanel * kFloatBlock;
  for (std::int64_t n = n_begin; n < n_end; n += kPanel) {
    const int columns = static_cast<int>(n_end - n < kPanel ? n_end - n : kPanel);
    for (std::int64_t k0 = 0; k0 < args.k; k0 += kFloatBlock) {
      const std::int64_t kc = args.k - k0 < kFloatBlock ? args.k - k0 : kFloatBlock;
      for (int i = 0; i < columns; ++i)
        decode_row(args, args.plain.weight + (n + i) * args.plain.row_bytes, k0, kc, rows + i * kFloatBlock);
      for (std::int64_t k = 0; k < kc; k += 16)
        transpose16(reinterpret_cast<const std::uint32_t*>(rows + k), kFloatBlock,
                    reinterpret_cast<std::uint32_t*>(panel + k * kPanel));
      Block block;
      block.k0 = k0, block.kc = kc, block.floats = panel;
      multiply_block<FloatFamily>(args, block, n, columns);
    }
  }
}

/// Without tiles that decode in registers: the reference, and the last panel of an odd number on AVX-512.
[[maybe_unused]] void int8_panel(const LinearArgs& args, std::int64_t n, int columns, void* scratch) {
  const PackedFormat& format = *args.panels.format;
  const PackedLayout& layout = *args.panels.layout;
  const std::uint8_t* panel = args.panels.data + n / kPanel * layout.bytes;
  auto* bytes = static_cast<std::uint8_t*>(scratch);
  auto* scale = reinterpret_cast<float*>(bytes + kPanel * kInt8Block);
  float* min = scale + kPanel * kInt8Block / 16;
  const bool full = format.codes == Codes::kByte || format.codes == Codes::kIq4;
  const auto multiply = format.group == 16 && format.has_min ? multiply_block<Int8Family<16, true, false>>
                        : format.group == 16                 ? multiply_block<Int8Family<16, false, false>>
                        : format.has_min                     ? multiply_block<Int8Family<32, true, false>>
                        : full                               ? multiply_block<Int8Family<32, false, true>>
                                                             : multiply_block<Int8Family<32, false, false>>;
  for (std::int64_t k0 = 0; k0 < args.k; k0 += kInt8Block) {
    const std::int64_t kc = args.k - k0 < kInt8Block ? args.k - k0 : kInt8Block;
    unpack_codes(format, layout, panel, k0 / 32, kc / 32, bytes);
    for (std::int64_t g = 0; g < kc / format.group; ++g) {
      store(scale + g * kPanel, group_scale(format, layout, panel, k0 / format.group + g));
      if (format.has_min) store(min + g * kPanel, group_min(format, layout, panel, k0 / format.group + g));
    }
    multiply(args, {k0, kc, nullptr, bytes, scale, min, format.zero}, n, columns);
  }
}

/// Outputs [n_begin, n_end) of a product with integer codes.
void packed_codes(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
#ifdef DLLM_PAIR_TILES
  for (; n_begin + 2 * kPanel <= n_end; n_begin += 2 * kPanel) int8_pair(args, n_begin, scratch);
#endif
  for (std::int64_t n = n_begin; n < n_end; n += kPanel) {
    const int columns = static_cast<int>(n_end - n < kPanel ? n_end - n : kPanel);
#ifdef DLLM_PANEL_TILES
    int8_panel_tiles(args, n, columns, *static_cast<PanelScratch*>(scratch));
#else
    int8_panel(args, n, columns, scratch);
#endif
  }
}

void linear(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  switch (args.operands) {
    case LinearOperands::kPlain:
      return linear_float(args, n_begin, n_end, scratch);
    case LinearOperands::kPackedFloats:
      if (args.panels.in_steps) return float_steps(args, n_begin, n_end, scratch);
      return packed_floats(args, n_begin, n_end, scratch);
    case LinearOperands::kPackedCodes:
      return packed_codes(args, n_begin, n_end, scratch);
    case LinearOperands::kSuper:
      return super_linear(args, n_begin, n_end, scratch);
  }
}

/// amax / 127, rounded up to two bits of mantissa: 1, 1.25, 1.5 or 1.75 times a power of two. Rounding up to powers of
/// two, as OCP's MXINT8 does, would cost 3.3 dB instead of 0.8.
inline float rounded_scale(float amax) {
  const float exact = amax / 127.f;
  std::uint32_t bits;
  __builtin_memcpy(&bits, &exact, 4);
  if (bits < 0x7f800000u) bits = (bits + 0x1fffffu) & ~0x1fffffu;
  float scale;
  __builtin_memcpy(&scale, &bits, 4);
  return scale;
}

void quantize_row(const float* x, std::int64_t k, bool exact, std::int8_t* values, float* scales, std::int32_t* sums) {
  const I32 magnitude = set1(std::int32_t{0x7fffffff});
  const F32 magic = set1(12582912.f);  // 1.5 * 2^23: adding it rounds to the nearest integer, ties to even
  for (std::int64_t i = 0; i < k; i += kScaleBlock) {
    // Compared as integers, absolute values order with NaN above infinity, so neither is missed.
    const I32 peak = max(bit_and(as_i32(load(x + i)), magnitude), bit_and(as_i32(load(x + i + 16)), magnitude));
    const std::int32_t peak_bits = reduce_max(peak);
    float amax;
    __builtin_memcpy(&amax, &peak_bits, 4);
    // 1 / scale overflows for subnormal amax; such a block is zero.
    const bool zero = amax < 0x1.0p-120f;
    const float block = zero ? 0.f : exact ? amax / 127.f : rounded_scale(amax);
    scales[i / kScaleBlock] = block;
    const F32 inverse = set1(zero ? 0.f : exact ? 127.f / amax : 1.f / block);
    for (std::int64_t half = 0; half < 2; ++half) {
      const F32 scaled = mul(load(x + i + 16 * half), inverse);
      // NaN becomes -127 here (the second operand wins), but is preserved in the scale.
      const F32 clamped = min(max(scaled, set1(-127.f)), set1(127.f));
      const I32 rounded = sub(as_i32(add(clamped, magic)), as_i32(magic));
      store_bytes(values + i + 16 * half, rounded);
      sums[i / kSumBlock + half] = reduce_add(rounded);
    }
  }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
