#include <cstring>
#include <iterator>
#include <utility>

#include "cpu/kernels/file_block.h"
#include "cpu/kernels/packed.h"

namespace dllm::cpu {
namespace {

/// Whether minima have a plane of their own.
constexpr bool min_plane(const PackedFormat& format) { return format.has_min && format.scales != Scales::kSuperPairs; }

bool half_is_zero(const std::uint8_t* p) { return p[0] == 0 && (p[1] & 0x7f) == 0; }
bool half_is_finite(const std::uint8_t* p) { return (p[1] & 0x7c) != 0x7c; }

/// Whether group g's scale is zero, and whether it is in the range that pack_panel() reports. Halves are within [2^-24,
/// 2^16], integers below 2^7 and shifts at most 3, so only values that are not finite are outside; exponents may be.
struct ScaleClass {
  bool zero;
  bool regular;
};
ScaleClass classify(const PackedFormat& format, const FileBlock& block, int g) {
  const bool keeps_zero = has_zero_code(format.codes);
  switch (format.scales) {
    case Scales::kHalf: {
      const std::uint8_t* const scale = block.scale + 2 * g;
      return {half_is_zero(scale), half_is_finite(scale) && (keeps_zero || !half_is_zero(scale))};
    }
    case Scales::kSuper:
    case Scales::kSuperPairs: {
      const bool finite = half_is_finite(block.super);
      const int bits = format.scales == Scales::kSuper ? 255 : 15;
      const bool zero = finite && (half_is_zero(block.super) || (block.scale[g] & bits) == 0);
      return {zero, finite && (keeps_zero || !zero)};
    }
    case Scales::kExponent:  // s = 2^(e - 128)
      return {false, block.scale[0] >= 88 && block.scale[0] <= 168};
    case Scales::kNone:
      break;
  }
  return {false, false};
}

/// Bits kShift, kShift + 1 of 32 codes into two planes: bits 2s, 2s + 1 of plane t belong to quad 4t + s.
template <int kShift>
void store_pairs(const std::uint8_t* u, std::uint8_t* planes) {
  for (int t = 0; t < 2; ++t) {
    std::uint8_t bits[4] = {};
    for (int s = 0; s < 4; ++s)
      for (int i = 0; i < 4; ++i)
        bits[i] = static_cast<std::uint8_t>(bits[i] | ((u[16 * t + 4 * s + i] >> kShift) & 3) << (2 * s));
    std::memcpy(planes + 64 * t, bits, 4);
  }
}
/// Bit kShift of 32 codes into a plane: bit q belongs to quad q.
template <int kShift>
void store_bits(const std::uint8_t* u, std::uint8_t* plane) {
  std::uint8_t bits[4] = {};
  for (int quad = 0; quad < 8; ++quad)
    for (int i = 0; i < 4; ++i)
      bits[i] = static_cast<std::uint8_t>(bits[i] | ((u[4 * quad + i] >> kShift) & 1) << quad);
  std::memcpy(plane, bits, 4);
}

/// Writes the codes of a group of 32 into the planes, for one lane.
template <Codes kCodes>
void store_group(const std::uint8_t* u, std::uint8_t* codes, std::uint8_t* high) {
  if constexpr (kCodes == Codes::kByte) {
    for (int quad = 0; quad < 8; ++quad) std::memcpy(codes + 64 * quad, u + 4 * quad, 4);
    return;
  }
  if constexpr (in_pairs(kCodes)) {
    store_pairs<0>(u, codes);
    if constexpr (has_third_bit(kCodes)) store_bits<2>(u, high);
    return;
  }
  std::uint8_t packed[16];
  for (int i = 0; i < 16; ++i) packed[i] = static_cast<std::uint8_t>((u[i] & 15) | (u[16 + i] << 4));
  for (int quad = 0; quad < 4; ++quad) std::memcpy(codes + 64 * quad, packed + 4 * quad, 4);
  if constexpr (kCodes == Codes::kNibble5) store_bits<4>(u, high);
  if constexpr (kCodes == Codes::kNibble6) store_pairs<4>(u, high);
}

/// Writes one row into its lane. A template per format, so that its loops have constant lengths: packing a model of 8
/// billion weights is part of its start-up time.
template <PackedFormat kFormat>
bool pack_lane(const PackedLayout& layout, const std::uint8_t* row, int lane, std::int64_t k, std::uint8_t* panel) {
  constexpr int kGroups = kFormat.block_elems / kFormat.group, kChunks = kFormat.block_elems / 32;
  constexpr int kWidth = kFormat.scales == Scales::kHalf ? 2 : 1;
  constexpr std::int64_t kCodeBytes = code_bytes(kFormat.codes), kHighBytes = high_bytes(kFormat.codes);
  constexpr int kZeroCode = kFormat.codes == Codes::kE2M1 || kFormat.codes == Codes::kE2M1Halves ? 0 : kFormat.zero;
  constexpr bool kKeepsZero = has_zero_code(kFormat.codes), kMins = min_plane(kFormat);
  std::uint8_t* codes = panel + 4 * lane;
  std::uint8_t* high = panel + layout.high + 4 * lane;
  std::uint8_t* scales = panel + layout.scale + kWidth * lane;
  std::uint8_t* mins = panel + layout.min + kWidth * lane;
  bool regular = true;
  FileBlock block;
  if constexpr (kFormat.codes == Codes::kNibble && kFormat.block_elems == 32) {
    // The file pairs nibbles as the plane does, so bytes are copied: four times as fast as decoding them.
    for (std::int64_t b = 0; b < k / 32; ++b, row += kFormat.block_bytes, codes += kCodeBytes) {
      std::memcpy(block.scale, row, 2);
      const ScaleClass scale = classify(kFormat, block, 0);
      regular = regular && scale.regular;
      std::memcpy(scales + b * kPanel * 2, row, 2);
      if constexpr (kFormat.has_min) std::memcpy(mins + b * kPanel * 2, row + 2, 2);
      const std::uint32_t zeros = 0x11111111u * static_cast<std::uint32_t>(kZeroCode);
      for (int quad = 0; quad < 4; ++quad) {
        std::uint32_t four;
        std::memcpy(&four, row + (kFormat.has_min ? 4 : 2) + 4 * quad, 4);
        four = scale.zero ? zeros : four;
        std::memcpy(codes + 64 * quad, &four, 4);
      }
    }
    return regular;
  }
  for (std::int64_t b = 0; b < k / kFormat.block_elems; ++b, row += kFormat.block_bytes) {
    read_file_block(kFormat.type, row, block);
    for (int g = 0; g < kGroups; ++g, scales += kPanel * kWidth, mins += kPanel * kWidth) {
      const ScaleClass scale = classify(kFormat, block, g);
      regular = regular && scale.regular;
      if (kKeepsZero && scale.zero) std::memset(block.codes + g * kFormat.group, kZeroCode, kFormat.group);
      std::memcpy(scales, block.scale + g * kWidth, kWidth);
      if constexpr (kMins) std::memcpy(mins, block.min + g * kWidth, kWidth);
    }
    if constexpr (kFormat.scales == Scales::kSuper || kFormat.scales == Scales::kSuperPairs) {
      std::memcpy(panel + layout.super + (b * kPanel + lane) * 2, block.super, 2);
      if constexpr (kFormat.has_min)
        std::memcpy(panel + layout.super_min + (b * kPanel + lane) * 2, block.super_min, 2);
    }
    for (int i = 0; i < kChunks; ++i, codes += kCodeBytes, high += kHighBytes)
      store_group<kFormat.codes>(block.codes + 32 * i, codes, high);
  }
  return regular;
}

/// All lanes of a panel of floats, in blocks of K that stay in the L1 cache while the lanes are written one by one.
template <class Word, bool kPairs>
void pack_floats(const std::uint8_t* rows, std::int64_t row_bytes, int count, std::int64_t k, std::uint8_t* panel) {
  constexpr std::int64_t kStep = 128;
  for (std::int64_t k0 = 0; k0 < k; k0 += kStep) {
    const std::int64_t kc = k - k0 < kStep ? k - k0 : kStep;
    for (int lane = 0; lane < count; ++lane) {
      Word words[kStep];
      std::memcpy(words, rows + lane * row_bytes + k0 * std::int64_t{sizeof(Word)},
                  static_cast<std::size_t>(kc) * sizeof(Word));
      for (std::int64_t i = 0; i < kc; ++i) {
        const std::int64_t at = kPairs ? (k0 + i) / 2 * 2 * kPanel + 2 * lane + (i & 1) : (k0 + i) * kPanel + lane;
        std::memcpy(panel + at * std::int64_t{sizeof(Word)}, words + i, sizeof(Word));
      }
    }
  }
}

/// See pack_panel().
bool regular_bf16(const std::uint8_t* row, std::int64_t k) {
  constexpr unsigned kLeast = (127 - 55) << 7, kMost = (127 + 55) << 7;
  bool regular = true;
  for (std::int64_t i = 0; i < k; ++i) {
    std::uint16_t word;
    std::memcpy(&word, row + 2 * i, 2);
    const unsigned magnitude = word & 0x7fffu;
    regular = regular & (magnitude == 0 || (magnitude >= kLeast && magnitude < kMost));
  }
  return regular;
}

bool pack_float_panel(const PackedFormat& format, const std::uint8_t* rows, std::int64_t row_bytes, int count,
                      std::int64_t k, std::uint8_t* panel) {
  if (format.type == TensorType::kF32) return pack_floats<std::uint32_t, false>(rows, row_bytes, count, k, panel), true;
  if (format.type == TensorType::kF16) return pack_floats<std::uint16_t, false>(rows, row_bytes, count, k, panel), true;
  if (k % 2 != 0) std::memset(panel + (k / 2) * 4 * kPanel, 0, 4 * kPanel);
  pack_floats<std::uint16_t, true>(rows, row_bytes, count, k, panel);
  bool regular = true;
  for (int lane = 0; lane < count; ++lane) regular = regular_bf16(rows + lane * row_bytes, k) && regular;
  return regular;
}

using PackLane = bool(const PackedLayout& layout, const std::uint8_t* row, int lane, std::int64_t k,
                      std::uint8_t* panel);

template <std::size_t... kIndex>
PackLane* pack_lane_of(TensorType type, std::index_sequence<kIndex...>) {
  PackLane* found = nullptr;
  const auto look_at = [&]<std::size_t kAt>() {
    if constexpr (kPackedFormats[kAt].codes != Codes::kFloat)
      if (kPackedFormats[kAt].type == type) found = pack_lane<kPackedFormats[kAt]>;
  };
  (look_at.template operator()<kIndex>(), ...);
  return found;
}

std::int64_t scale_bytes(const PackedFormat& format) { return format.scales == Scales::kHalf ? 2 : 1; }

}  // namespace

PackedLayout packed_layout(const PackedFormat& format, std::int64_t k) {
  PackedLayout layout;
  if (packs_floats(format)) {
    const std::int64_t words = format.type == TensorType::kBF16 ? (k + 1) / 2 * 2 : k;
    layout.bytes = (words * kPanel * format.block_bytes + 63) / 64 * 64;
    return layout;
  }
  const std::int64_t chunks = k / 32, groups = k / format.group;
  std::int64_t at = 0;
  const auto plane = [&at](std::int64_t bytes) {
    const std::int64_t begin = at;
    at += (bytes + 63) / 64 * 64;
    return begin;
  };
  plane(chunks * code_bytes(format.codes));
  layout.high = plane(chunks * high_bytes(format.codes));
  layout.scale = plane(groups * kPanel * scale_bytes(format));
  layout.min = plane(min_plane(format) ? groups * kPanel * scale_bytes(format) : 0);
  const bool integers = format.scales == Scales::kSuper || format.scales == Scales::kSuperPairs;
  const std::int64_t supers = integers ? k / kFileBlockElems : 0;
  layout.super = plane(supers * kPanel * 2);
  layout.super_min = plane(format.has_min ? supers * kPanel * 2 : 0);
  layout.bytes = at;
  return layout;
}

bool pack_panel(const PackedFormat& format, const std::uint8_t* rows, std::int64_t row_bytes, int count, std::int64_t k,
                std::uint8_t* panel) {
  const PackedLayout layout = packed_layout(format, k);
  // Codes and scales of zero bits give finite products, which are not read.
  if (count < kPanel) std::memset(panel, 0, static_cast<std::size_t>(layout.bytes));
  if (packs_floats(format)) return pack_float_panel(format, rows, row_bytes, count, k, panel);
  PackLane* const pack = pack_lane_of(format.type, std::make_index_sequence<std::size(kPackedFormats)>());
  bool regular = true;
  for (int lane = 0; lane < count; ++lane) regular = pack(layout, rows + lane * row_bytes, lane, k, panel) && regular;
  return regular;
}

}  // namespace dllm::cpu
