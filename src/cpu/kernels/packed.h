#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/tensor_type.h"

// Weights in the kernels' layout. GGML keeps the blocks of one output row together; a kernel computes 16 outputs at
// once, one per lane, so packing (once, when a model is loaded) transposes panels of 16 rows. A panel is contiguous and
// consists of planes, each a plain array over K, so that loads are whole aligned registers:
//
//   codes   per group of 32 k: [quad][16 outputs][4 k]; for nibbles the byte of quad j holds k 4j+i below and
//           k 16+4j+i above (GGML's own pairing), so 8 quads take 256 bytes; whole bytes take 512
//           (Q2_K, Q3_K, IQ1 and IQ2: two planes of [16][4] bytes, bits 2s, 2s+1 of plane t belong to quad 4t + s)
//   high    the bits above the nibble: for 5-bit codes [16][4] bytes a group, bit q of byte (n, i) belongs to quad q
//           (so is the third bit of 3-bit codes); for 6-bit codes two such planes, divided like those of Q2_K
//   scale   per group [16] in the file's own precision: halves, exponents, or 6/8-bit integers; Q2_K has a scale below
//           a minimum in each byte
//   min     the same for minima
//   super   K-quants: per 256 k [16] halves that the integers multiply; super_min for the minima
//
// Floats are one plane: [k][16] of F32 or F16, and [k / 2][16][2] of BF16, so that a 32-bit word holds the operands of
// VDPBF16PS and a shift or a mask widens it (an odd k is followed by zeros).
//
// The bytes are those of the file in another order, except that 6-bit scales of K-quants take whole bytes: +2.8 %
// (Q4_K), +2.3 % (Q5_K), +3.6 % (Q3_K), +1.5 % (IQ4_XS), and that those of NVFP4 become halves: +11 %. IQ1, IQ2 and IQ3
// are taken apart instead: their codes are places in lists of groups, which no kernel could follow as fast as it
// multiplies. Each weight takes 3 bits (IQ1, IQ2) or 4 (IQ3) in memory, whatever it takes in the file.
//
// A code of a group whose scale is zero is stored as the format's zero point: such a group then contributes an exact
// zero for any finite number that replaces its scale (see the scale table of the VNNI tiles). No value of the types IQ
// is zero, so a panel with such a group is not regular (pack_panel()).

namespace dllm::cpu {

/// Outputs of a panel: one per lane.
inline constexpr std::int64_t kPanel = 16;

/// kE2M1Halves: as kE2M1, but a scale per 16. kListed: places in a table of eight or sixteen values (Values).
enum class Codes : std::uint8_t {
  kTwoBits,
  kThreeBits,
  kNibble,
  kNibble5,
  kNibble6,
  kByte,
  kE2M1,
  kE2M1Halves,
  kIq4,
  kListed4,
  kListed3,
  kListed3Halves,
  kFloat
};
/// Whether codes take less than a byte in memory, and must be decoded.
constexpr bool narrower_than_byte(Codes codes) { return codes != Codes::kByte && codes != Codes::kFloat; }
/// Whether codes are pairs of bits in two planes, with a third in another or not.
constexpr bool in_pairs(Codes codes) {
  return codes == Codes::kTwoBits || codes == Codes::kThreeBits || codes == Codes::kListed3 ||
         codes == Codes::kListed3Halves;
}
constexpr bool has_third_bit(Codes codes) { return in_pairs(codes) && codes != Codes::kTwoBits; }
/// Whether codes are places in the table that the format names (Values).
constexpr bool listed(Codes codes) {
  return codes == Codes::kListed4 || codes == Codes::kListed3 || codes == Codes::kListed3Halves;
}
/// Whether some code means zero.
constexpr bool has_zero_code(Codes codes) { return codes != Codes::kIq4 && !listed(codes); }
/// Bytes of 32 k of a panel: of the plane of codes, and of that of their high bits.
constexpr std::int64_t code_bytes(Codes codes) { return codes == Codes::kByte ? 512 : in_pairs(codes) ? 128 : 256; }
constexpr std::int64_t high_bytes(Codes codes) {
  return codes == Codes::kNibble5 || has_third_bit(codes) ? 64 : codes == Codes::kNibble6 ? 128 : 0;
}
/// Scales per 32 weights.
constexpr int scales_per_32(Codes codes) {
  return codes == Codes::kTwoBits || codes == Codes::kThreeBits || codes == Codes::kNibble6 ||
                 codes == Codes::kE2M1Halves || codes == Codes::kListed3Halves
             ? 2
             : 1;
}
/// kSuperPairs: as kSuper, but a scale of four bits below a minimum of four.
enum class Scales : std::uint8_t { kHalf, kSuper, kSuperPairs, kExponent, kNone };

/// What the places of Codes::kListed stand for.
enum class Values : std::uint8_t { kNone, kIq1, kIq2, kIq3Xxs, kIq3S };

/// Instead of a largest code: bytes of both signs (Dots of panels-inl.h).
inline constexpr int kSignedBytes = 256;

/// w = s (u - zero) - m, with a scale s (and a minimum m) per `group` weights along K; floats are stored unchanged.
struct PackedFormat {
  TensorType type;
  std::int32_t block_elems;  ///< of the file's blocks
  std::int32_t block_bytes;
  std::int32_t group;  ///< 16 or 32
  std::int32_t zero;
  bool has_min;
  Codes codes;
  Scales scales;
  /// The activations' scales: exact with 8- and 6-bit weights, else rounded up (quantize_row).
  bool exact_rows;
  Values values = Values::kNone;
  /// Of Scales::kSuper: s is the half times the integer times 2^-shift.
  std::int32_t shift = 0;
};

inline constexpr PackedFormat kPackedFormats[] = {
    {TensorType::kQ4_0, 32, 18, 32, 8, false, Codes::kNibble, Scales::kHalf, false},
    {TensorType::kQ4_1, 32, 20, 32, 0, true, Codes::kNibble, Scales::kHalf, false},
    {TensorType::kQ5_0, 32, 22, 32, 16, false, Codes::kNibble5, Scales::kHalf, false},
    {TensorType::kQ5_1, 32, 24, 32, 0, true, Codes::kNibble5, Scales::kHalf, false},
    {TensorType::kQ8_0, 32, 34, 32, 128, false, Codes::kByte, Scales::kHalf, true},
    {TensorType::kQ2_K, 256, 84, 16, 0, true, Codes::kTwoBits, Scales::kSuperPairs, false},
    {TensorType::kQ3_K, 256, 110, 16, 4, false, Codes::kThreeBits, Scales::kSuper, false},
    {TensorType::kQ4_K, 256, 144, 32, 0, true, Codes::kNibble, Scales::kSuper, false},
    {TensorType::kQ5_K, 256, 176, 32, 0, true, Codes::kNibble5, Scales::kSuper, false},
    {TensorType::kQ6_K, 256, 210, 16, 32, false, Codes::kNibble6, Scales::kSuper, true},
    {TensorType::kIQ4_NL, 32, 18, 32, 128, false, Codes::kIq4, Scales::kHalf, false},
    {TensorType::kIQ4_XS, 256, 136, 32, 128, false, Codes::kIq4, Scales::kSuper, false},
    {TensorType::kIQ1_S, 256, 50, 32, 9, false, Codes::kListed3, Scales::kSuper, false, Values::kIq1, 3},
    {TensorType::kIQ1_M, 256, 56, 16, 9, false, Codes::kListed3Halves, Scales::kSuper, false, Values::kIq1, 3},
    {TensorType::kIQ2_XXS, 256, 66, 32, 43, false, Codes::kListed3, Scales::kSuper, false, Values::kIq2, 3},
    {TensorType::kIQ2_XS, 256, 74, 16, 43, false, Codes::kListed3Halves, Scales::kSuper, false, Values::kIq2, 3},
    {TensorType::kIQ2_S, 256, 82, 16, 43, false, Codes::kListed3Halves, Scales::kSuper, false, Values::kIq2, 3},
    {TensorType::kIQ3_XXS, 256, 98, 32, 31, false, Codes::kListed4, Scales::kSuper, false, Values::kIq3Xxs, 1},
    {TensorType::kIQ3_S, 256, 110, 32, 15, false, Codes::kListed4, Scales::kSuper, false, Values::kIq3S},
    {TensorType::kMXFP4, 32, 17, 32, 12, false, Codes::kE2M1, Scales::kExponent, false},
    {TensorType::kNVFP4, 64, 36, 16, 12, false, Codes::kE2M1Halves, Scales::kHalf, false},
    {TensorType::kF32, 1, 4, 1, 0, false, Codes::kFloat, Scales::kNone, true},
    {TensorType::kF16, 1, 2, 1, 0, false, Codes::kFloat, Scales::kNone, true},
    {TensorType::kBF16, 1, 2, 1, 0, false, Codes::kFloat, Scales::kNone, true},
};

/// nullptr for formats that are not packed.
constexpr const PackedFormat* packed_format(TensorType type) {
  for (const PackedFormat& format : kPackedFormats)
    if (format.type == type) return &format;
  return nullptr;
}
/// Whether the float kernels process the format, over floats in groups of rows, instead of the int8 kernels.
inline bool packs_floats(const PackedFormat& format) { return format.codes == Codes::kFloat; }

/// Where a panel's planes begin, in bytes; every plane is aligned to 64.
struct PackedLayout {
  std::int64_t high = 0;
  std::int64_t scale = 0;
  std::int64_t min = 0;
  std::int64_t super = 0;
  std::int64_t super_min = 0;
  std::int64_t bytes = 0;  ///< of the panel
};

/// `k` is a multiple of the format's block.
PackedLayout packed_layout(const PackedFormat& format, std::int64_t k);

/// Packs `count` <= 16 consecutive rows of the file, `row_bytes` apart, into one panel; further lanes are zero weights.
/// `panel` is aligned to 64 and holds packed_layout().bytes. Returns whether every scale is zero (if the format has a
/// code for zero) or of a magnitude in [2^-40, 2^40]: then scales may be multiplied by adding exponents. For BF16:
/// whether every weight is zero or in [2^-55, 2^55): then no product or sum with rows of such values is subnormal. For
/// F32 and F16: true.
bool pack_panel(const PackedFormat& format, const std::uint8_t* rows, std::int64_t row_bytes, int count, std::int64_t k,
                std::uint8_t* panel);

}  // namespace dllm::cpu
