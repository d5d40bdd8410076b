#pragma once

// Reading packed panels (packed.h): scales and minima as floats, codes as bytes.

namespace dllm::cpu::DLLM_ISA {
namespace {

/// use.operator()<codes, has_min>() for a format of integer codes.
template <class Use>
auto with_codes(const PackedFormat& format, const Use& use) {
  switch (format.codes) {
    case Codes::kTwoBits:
      return use.template operator()<Codes::kTwoBits, true>();
    case Codes::kThreeBits:
      return use.template operator()<Codes::kThreeBits, false>();
    case Codes::kIq4:
      return use.template operator()<Codes::kIq4, false>();
    case Codes::kListed4:
      return use.template operator()<Codes::kListed4, false>();
    case Codes::kListed3:
      return use.template operator()<Codes::kListed3, false>();
    case Codes::kListed3Halves:
      return use.template operator()<Codes::kListed3Halves, false>();
    case Codes::kNibble:
      return format.has_min ? use.template operator()<Codes::kNibble, true>()
                            : use.template operator()<Codes::kNibble, false>();
    case Codes::kNibble5:
      return format.has_min ? use.template operator()<Codes::kNibble5, true>()
                            : use.template operator()<Codes::kNibble5, false>();
    case Codes::kNibble6:
      return use.template operator()<Codes::kNibble6, false>();
    case Codes::kE2M1:
      return use.template operator()<Codes::kE2M1, false>();
    case Codes::kE2M1Halves:
      return use.template operator()<Codes::kE2M1Halves, false>();
    case Codes::kByte:
    case Codes::kFloat:
      break;
  }
  return use.template operator()<Codes::kByte, false>();
}

inline F32 load_halves(const std::uint8_t* p) {
  std::uint16_t halves[16];
  __builtin_memcpy(halves, p, sizeof halves);
  return load_half(halves);
}

/// 2^(e - 128): half of E8M0's value, for codes that are doubled (kE2M1). 2^-128 and 2^-127 are subnormal.
inline F32 load_exponents(const std::uint8_t* p) {
  const I32 e = load_uint8(p), one = set1(std::int32_t{1});
  const F32 normal = as_f32(shift_left<23>(sub(e, one)));
  const F32 subnormal =
      select_greater(one, e, as_f32(set1(std::int32_t{0x00200000})), as_f32(set1(std::int32_t{0x00400000})));
  return select_greater(e, one, normal, subnormal);
}

/// 2^-shift of a format.
inline float unit_of(const PackedFormat& format) { return 1.f / static_cast<float>(1 << format.shift); }

/// Scales of group g of a panel.
inline F32 group_scale(const PackedFormat& format, const PackedLayout& layout, const std::uint8_t* panel,
                       std::int64_t g) {
  switch (format.scales) {
    case Scales::kHalf:
      return load_halves(panel + layout.scale + g * kPanel * 2);
    case Scales::kExponent:
      return load_exponents(panel + layout.scale + g * kPanel);
    case Scales::kSuper:
    case Scales::kSuperPairs:
    case Scales::kNone:
      break;
  }
  const F32 halves = load_halves(panel + layout.super + g * format.group / 256 * kPanel * 2);
  const F32 super = format.shift == 0 ? halves : mul(halves, set1(unit_of(format)));
  const std::uint8_t* integers = panel + layout.scale + g * kPanel;
  if (format.scales == Scales::kSuperPairs)
    return mul(super, to_f32(bit_and(load_uint8(integers), set1(std::int32_t{15}))));
  // Formats with minima have unsigned scales, the others signed ones.
  return mul(super,
             to_f32(format.has_min ? load_uint8(integers) : load_int8(reinterpret_cast<const std::int8_t*>(integers))));
}

/// m in w = s (u - zero) - m. Q4_1 and Q5_1 store its negative.
inline F32 group_min(const PackedFormat& format, const PackedLayout& layout, const std::uint8_t* panel,
                     std::int64_t g) {
  if (format.scales == Scales::kHalf) return sub(set1(0.f), load_halves(panel + layout.min + g * kPanel * 2));
  const F32 super = load_halves(panel + layout.super_min + g * format.group / 256 * kPanel * 2);
  if (format.scales == Scales::kSuperPairs)
    return mul(super, to_f32(shift_right<4>(load_uint8(panel + layout.scale + g * kPanel))));
  return mul(super, to_f32(load_uint8(panel + layout.min + g * kPanel)));
}

/// E2M1 values doubled are the integers 0 1 2 3 4 6 8 12 and their negatives; 12 makes them unsigned.
constexpr std::uint8_t kE2M1Codes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
/// kIq4Values, made unsigned by 128.
constexpr std::uint8_t kIq4Codes[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
/// kIq4Values as signed bytes.
[[maybe_unused]] constexpr std::uint8_t kIq4Bytes[16] = {129, 152, 173, 191, 207, 221, 234, 246,
                                                         1,   13,  25,  38,  53,  69,  89,  113};

// Values of IQ1, IQ2 and IQ3 (numerics/iq_blocks.h), made unsigned by the format's zero; those of IQ3_XXS are halved.
// Codes of three bits are below eight.
constexpr std::uint8_t kIq1Codes[16] = {2, 10, 18, 9, 0, 8, 16, 9};
constexpr std::uint8_t kIq2Codes[16] = {51, 68, 86, 43, 35, 18, 0, 43};
constexpr std::uint8_t kIq3XxsCodes[16] = {33, 37, 41, 45, 49, 53, 57, 62, 29, 25, 21, 17, 13, 9, 5, 0};
constexpr std::uint8_t kIq3SCodes[16] = {16, 18, 20, 22, 24, 26, 28, 30, 14, 12, 10, 8, 6, 4, 2, 0};

/// Whether codes index a table.
constexpr bool tabled(Codes codes) {
  return codes == Codes::kE2M1 || codes == Codes::kE2M1Halves || codes == Codes::kIq4 || listed(codes);
}
/// Of 16 bytes; not read for codes without a table.
inline const std::uint8_t* code_table(const PackedFormat& format) {
  switch (format.values) {
    case Values::kIq1:
      return kIq1Codes;
    case Values::kIq2:
      return kIq2Codes;
    case Values::kIq3Xxs:
      return kIq3XxsCodes;
    case Values::kIq3S:
      return kIq3SCodes;
    case Values::kNone:
      break;
  }
  return format.codes == Codes::kIq4 ? kIq4Codes : kE2M1Codes;
}

/// Two planes of pairs of bits: those of 32 k to bytes [quad][16][4].
inline void unpack_pairs(const std::uint8_t* planes, std::uint8_t* out) {
  for (int quad = 0; quad < 8; ++quad)
    for (int i = 0; i < 64; ++i)
      out[64 * quad + i] = static_cast<std::uint8_t>((planes[64 * (quad / 4) + i] >> (2 * (quad % 4))) & 3);
}

/// Decodes `chunks` groups of 32 from group `first` on to bytes [chunk][quad][16][4]. The loops have constant lengths,
/// for the compiler to vectorise.
[[maybe_unused]] void unpack_codes(const PackedFormat& format, const PackedLayout& layout, const std::uint8_t* panel,
                                   std::int64_t first, std::int64_t chunks, std::uint8_t* out) {
  const Codes codes = format.codes;
  const std::uint8_t* const table = code_table(format);
  if (codes == Codes::kByte) {
    __builtin_memcpy(out, panel + first * 512, static_cast<std::size_t>(chunks * 512));
    return;
  }
  const std::uint8_t* low = panel + first * code_bytes(codes);
  const std::uint8_t* high = panel + layout.high + first * high_bytes(codes);
  for (std::int64_t c = 0; c < chunks; ++c, low += code_bytes(codes), high += high_bytes(codes), out += 512) {
    if (in_pairs(codes)) {
      unpack_pairs(low, out);
      if (has_third_bit(codes))
        for (int quad = 0; quad < 8; ++quad)
          for (int i = 0; i < 64; ++i)
            out[64 * quad + i] = static_cast<std::uint8_t>(out[64 * quad + i] | (((high[i] >> quad) & 1) << 2));
      if (listed(codes))
        for (int i = 0; i < 512; ++i) out[i] = table[out[i]];
      continue;
    }
    for (int i = 0; i < 256; ++i) out[i] = low[i] & 15;
    for (int i = 0; i < 256; ++i) out[256 + i] = static_cast<std::uint8_t>(low[i] >> 4);
    switch (codes) {
      case Codes::kNibble5:
        for (int quad = 0; quad < 8; ++quad)
          for (int i = 0; i < 64; ++i)
            out[64 * quad + i] = static_cast<std::uint8_t>(out[64 * quad + i] | (((high[i] >> quad) & 1) << 4));
        break;
      case Codes::kNibble6:
        for (int quad = 0; quad < 8; ++quad)
          for (int i = 0; i < 64; ++i)
            out[64 * quad + i] = static_cast<std::uint8_t>(
                out[64 * quad + i] | (((high[64 * (quad / 4) + i] >> (2 * (quad % 4))) & 3) << 4));
        break;
      case Codes::kE2M1:
      case Codes::kE2M1Halves:
      case Codes::kIq4:
      case Codes::kListed4:
        for (int i = 0; i < 512; ++i) out[i] = table[out[i]];
        break;
      case Codes::kTwoBits:
      case Codes::kThreeBits:
      case Codes::kListed3:
      case Codes::kListed3Halves:
      case Codes::kNibble:
      case Codes::kByte:
      case Codes::kFloat:
        break;
    }
  }
}

[[maybe_unused]] bool runs_int8(TensorType type) {
  const PackedFormat* format = packed_format(type);
  return format != nullptr && !packs_floats(*format);
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
