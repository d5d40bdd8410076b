#pragma once

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/pairs-inl.h"

// Included only by sets that define DLLM_PAIR_TILES (512-bit VNNI); see kernels-inl.h.
//
// Products of pairs of panels, block of K by block of K: scales as floats, prefetching, sums between blocks.

namespace dllm::cpu::DLLM_ISA {
namespace {

/// K per block: so that codes, table and six rows of x stay in 48 KiB of L1; codes decoded to bytes take twice the
/// room. Each tile costs some 40 cycles in addition to its groups, and each line that enters L1 about 1.4.
inline std::int64_t pair_block(const LinearArgs& args) {
  return args.panels.format->group == 16 || decodes_per_block(args) ? 512 : 1024;
}

using PairRows = void(const LinearArgs& args, PairBlock block, const PairSums& sums);

constexpr std::int64_t kDecodedBytes = 512 * kPanel;  ///< of a block's codes, of one panel

/// How 16 bytes are floats.
enum class Bytes { kUnsigned, kSigned, kLow, kHigh };  ///< the last two: their lower and upper four bits
template <Bytes kBytes>
inline __m512 byte_floats(const std::uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  __m512i words = kBytes == Bytes::kSigned ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
  if constexpr (kBytes == Bytes::kLow) words = _mm512_and_si512(words, _mm512_set1_epi32(15));
  if constexpr (kBytes == Bytes::kHigh) words = _mm512_srli_epi32(words, 4);
  return _mm512_cvtepi32_ps(words);
}

/// `at` is the plane of integers, `super_at` that of the halves that multiply them.
template <Bytes kBytes>
void load_super(const PackedFormat& format, const std::uint8_t* at, const std::uint8_t* super_at, std::int64_t first,
                std::int64_t count, float* out) {
  const std::int64_t per_super = 256 / format.group;
  for (std::int64_t g = 0; g < count; g += per_super) {
    const __m512 halves = half_floats(super_at + (first + g) / per_super * kPanel * 2);
    const __m512 super = format.shift == 0 ? halves : _mm512_mul_ps(halves, _mm512_set1_ps(unit_of(format)));
    const std::uint8_t* integers = at + (first + g) * kPanel;
    for (std::int64_t i = 0; i < per_super; ++i, out += kPanel, integers += kPanel)
      _mm512_storeu_ps(out, _mm512_mul_ps(super, byte_floats<kBytes>(integers)));
  }
}

/// Scales (unless the tiles read them) and minima of groups [first, first + count) as floats.
void load_scales(const PackedFormat& format, const PackedLayout& layout, const std::uint8_t* panel, std::int64_t first,
                 std::int64_t count, float* scale, float* min) {
  if (format.scales == Scales::kSuper || format.scales == Scales::kSuperPairs) {
    const auto load = format.scales == Scales::kSuperPairs ? load_super<Bytes::kLow>
                      : format.has_min                     ? load_super<Bytes::kUnsigned>
                                                           : load_super<Bytes::kSigned>;
    load(format, panel + layout.scale, panel + layout.super, first, count, scale);
  } else if (format.scales == Scales::kHalf && !half_scales(format.codes, format.has_min)) {
    const std::uint8_t* at = panel + layout.scale + first * kPanel * 2;
    for (std::int64_t g = 0; g < count; ++g) _mm512_storeu_ps(scale + g * kPanel, half_floats(at + g * kPanel * 2));
  } else if (format.scales == Scales::kExponent) {
    const std::uint8_t* at = panel + layout.scale + first * kPanel;
    for (std::int64_t g = 0; g < count; ++g) store(scale + g * kPanel, load_exponents(at + g * kPanel));
  }
  if (!format.has_min) return;
  const std::uint8_t *at = panel + layout.min, *super_at = panel + layout.super_min;
  if (format.scales == Scales::kSuper) return load_super<Bytes::kUnsigned>(format, at, super_at, first, count, min);
  if (format.scales == Scales::kSuperPairs)
    return load_super<Bytes::kHigh>(format, panel + layout.scale, super_at, first, count, min);
  for (std::int64_t g = 0; g < count; ++g)
    _mm512_storeu_ps(min + g * kPanel, _mm512_sub_ps(_mm512_setzero_ps(), half_floats(at + (first + g) * kPanel * 2)));
}

/// Outputs [n, n + 32). Meanwhile the tiles prefetch the next pair: the processor's own prefetchers follow neither the
/// planes nor the jump from pair to pair.
void int8_pair(const LinearArgs& args, std::int64_t n, void* scratch) {
  const PackedFormat& format = *args.panels.format;
  const PackedLayout& layout = *args.panels.layout;
  const std::uint8_t* panel = args.panels.data + n / kPanel * layout.bytes;
  constexpr std::int64_t kMostGroups = 32;
  static_assert(2 * kMostGroups * (kTable + 2 * kPanel) * 4 <= std::int64_t{kLinearScratchBytes});
  auto* table = static_cast<float*>(scratch);
  float* scale = table + 2 * kMostGroups * kTable;
  float* min = scale + 2 * kMostGroups * kPanel;
  float* out = args.out + (n - args.out_origin);
  // If scratch cannot hold all rows, sums are kept in the output.
  constexpr std::int64_t kWidth = 2 * kPanel, kMostRows = 256;
  float* const waiting = min + 2 * kMostGroups * kPanel;
  auto* const decoded = reinterpret_cast<std::uint8_t*>(waiting + kMostRows * kWidth);
  static_assert((2 * kMostGroups * (kTable + 2 * kPanel) + kMostRows * kWidth) * 4 + 2 * kDecodedBytes <=
                std::int64_t{kLinearScratchBytes});
  const bool scratched = args.rows <= kMostRows;
  PairRows* const rows =
      with_codes(format, []<Codes kCodes, bool kMin>() -> PairRows* { return pair_rows<kCodes, kMin>; });
  // By default a worker's next call begins where this one ends.
  const std::uint8_t* const next = n + 4 * kPanel <= args.n ? panel + 2 * layout.bytes : args.follow;
  const std::int64_t lines = next != nullptr ? 2 * layout.bytes / 64 : 0;
  PairBlock block;
  block.codes_table = code_table(format);
  const std::int64_t step = pair_block(args);
  for (std::int64_t k0 = 0; k0 < args.k; k0 += step) {
    block.k0 = k0;
    block.kc = args.k - k0 < step ? args.k - k0 : step;
    const std::int64_t first = k0 / format.group, count = block.kc / format.group;
    for (int p = 0; p < 2; ++p) {
      const std::uint8_t* base = panel + p * layout.bytes;
      block.codes[p] = base + k0 / 32 * code_bytes(format.codes);
      block.high[p] = base + layout.high + k0 / 32 * high_bytes(format.codes);
      block.half[p] = base + layout.scale + first * kPanel * 2;
      block.decoded[p] = decoded + p * kDecodedBytes;
      block.table[p] = table + p * kMostGroups * kTable;
      block.min[p] = min + p * kMostGroups * kPanel;
      block.scale[p] = scale + p * kMostGroups * kPanel;
      load_scales(format, layout, base, first, count, scale + p * kMostGroups * kPanel, min + p * kMostGroups * kPanel);
    }
    const std::int64_t line = lines * k0 / args.k;
    block.prefetch = {next + 64 * line, lines * (k0 + block.kc) / args.k - line};
    PairSums sums;
    const bool last = k0 + block.kc == args.k;
    sums.to = scratched && !last ? waiting : out;
    sums.to_stride = scratched && !last ? kWidth : args.out_stride;
    if (k0 > 0) sums.from = scratched ? waiting : out;
    sums.from_stride = scratched ? kWidth : args.out_stride;
    rows(args, block, sums);
  }
  if (args.bias == nullptr) return;
  const __m512 bias0 = _mm512_loadu_ps(args.bias + n), bias1 = _mm512_loadu_ps(args.bias + n + kPanel);
  for (std::int64_t m = 0; m < args.rows; ++m) {
    float* to = out + m * args.out_stride;
    _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), bias0));
    _mm512_storeu_ps(to + kPanel, _mm512_add_ps(_mm512_loadu_ps(to + kPanel), bias1));
  }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
