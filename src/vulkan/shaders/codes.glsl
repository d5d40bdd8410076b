// Products with packed codes: the arguments, and how panels are read (src/cpu/kernels/packed.h has their layout). Words of
// a panel are loaded first (Raw) and decoded later, so that loads can run ahead. Included after types.glsl.

layout(constant_id = 2) const uint kCodes = 2;   // cpu::Codes
layout(constant_id = 3) const uint kScales = 0;  // cpu::Scales
layout(constant_id = 4) const bool kHasMinimum = false;
layout(constant_id = 5) const uint kGroup = 32;  // values of a scale
layout(constant_id = 6) const int kZero = 8;     // of codes
const uint kTwoBits = 0, kThreeBits = 1, kNibble = 2, kNibble5 = 3, kNibble6 = 4, kByte = 5, kE2M1 = 6, kIq4 = 7;
// Places in a table (cpu::Codes::kListed): a number for each table. IQ1 and IQ2 have three bits, IQ3 has four.
const uint kIq1 = 8, kIq2 = 9, kIq3Xxs = 10, kIq3S = 11;
const uint kHalf = 0, kSuper = 1, kSuperPairs = 2, kExponent = 3;

layout(push_constant) uniform Push {
  Words panels;
  Words values;  // [rows][k / 4], as quantize.comp writes them
  Floats scales;
  Ints sums;
  Floats bias;  // [n], if there is one
  Floats result;  // [rows][n]
  Ints count;   // [1], rows
  Floats route;  // of experts, as route_choice.comp writes it
  uint k;
  uint n;
  uint panel_words;
  uint high;     // where planes begin in a panel, in bytes
  uint scale;
  uint minimum;
  uint super;
  uint super_minimum;
  uint has_bias;
  uint used;          // experts of a row
  uint expert_words;  // from a matrix to the next
  uint shared_rows;   // 1: all pairs of a row read the same row of x
  uint zero;
} p;

#include "exact.glsl"
#include "experts.glsl"

const uint kHalves = 32 / kGroup;  // groups of 32 values
const bool kThirdBit = kCodes == kThreeBits || kCodes == kIq1 || kCodes == kIq2;
const bool kInPairs = kCodes == kTwoBits || kThirdBit;
const bool kTabled = kCodes >= kE2M1;
// Scales are halves times integers times 2^-kShift (cpu::PackedFormat::shift).
const int kShift = kCodes == kIq1 || kCodes == kIq2 ? 3 : kCodes == kIq3Xxs ? 1 : 0;

// A group of one output, as it is in memory.
struct Raw {
  uint low[8];
  uint high;
  uint scale;
  uint super;
  uint minimum;
  uint super_minimum;
};

uint half_word(uint base, uint offset, uint index) { return p.panels.at[base + offset / 4 + index / 2]; }
uint byte_word(uint base, uint offset, uint index) { return p.panels.at[base + offset / 4 + index / 4]; }
float half_of(uint word, uint index) { return unpackHalf2x16(word)[index % 2]; }
uint byte_of(uint word, uint index) { return word >> (8 * (index % 4)) & 255u; }

Raw load_group(uint base, uint group, uint lane) {
  Raw raw;
  const uint block = group / kHalves, part = group % kHalves, at = group * 16 + lane;
  if (kCodes == kByte) {
    [[unroll]] for (uint q = 0; q < 8; ++q) raw.low[q] = p.panels.at[base + block * 128 + 16 * q + lane];
  } else if (kInPairs) {
    raw.low[0] = p.panels.at[base + block * 32 + 16 * part + lane];
    if (kGroup == 32) raw.low[1] = p.panels.at[base + block * 32 + 16 + lane];
  } else {
    [[unroll]] for (uint q = 0; q < 4; ++q) raw.low[q] = p.panels.at[base + block * 64 + 16 * q + lane];
  }
  if (kCodes == kNibble5 || kThirdBit) raw.high = p.panels.at[base + p.high / 4 + block * 16 + lane];
  if (kCodes == kNibble6) raw.high = p.panels.at[base + p.high / 4 + block * 32 + 16 * part + lane];
  const uint super = group * kGroup / 256 * 16 + lane;
  raw.scale = kScales == kHalf ? half_word(base, p.scale, at) : byte_word(base, p.scale, at);
  if (kScales == kSuper || kScales == kSuperPairs) raw.super = half_word(base, p.super, super);
  if (kHasMinimum) {
    if (kScales == kHalf) raw.minimum = half_word(base, p.minimum, at);
    if (kScales == kSuper) raw.minimum = byte_word(base, p.minimum, at);
    if (kScales != kHalf) raw.super_minimum = half_word(base, p.super_minimum, super);
  }
  return raw;
}

float scale_of(Raw raw, uint lane) {
  if (kScales == kHalf) return half_of(raw.scale, lane);
  const uint integer = byte_of(raw.scale, lane);
  if (kScales == kExponent)  // half of E8M0's value: codes are doubled
    return uintBitsToFloat(integer > 1 ? (integer - 1) << 23 : integer == 1 ? 0x00400000u : 0x00200000u);
  float super = half_of(raw.super, lane);
  if (kShift != 0) super = multiply(super, power_of_two(-kShift));
  if (kScales == kSuperPairs) return multiply(super, float(integer & 15u));
  return multiply(super, float(kHasMinimum ? int(integer) : bitfieldExtract(int(integer), 0, 8)));
}

float minimum_of(Raw raw, uint lane) {
  if (kScales == kHalf) return subtract(0.0, half_of(raw.minimum, lane));
  const float super = half_of(raw.super_minimum, lane);
  if (kScales == kSuperPairs) return multiply(super, float(byte_of(raw.scale, lane) >> 4));
  return multiply(super, float(byte_of(raw.minimum, lane)));
}

// What a code stands for, made unsigned by kZero: E2M1 doubled, IQ4_NL's values, and those of IQ1, IQ2 and IQ3, of which
// IQ3_XXS has halves (src/cpu/kernels/packed-inl.h).
uint value_of(uint code) {
  const uint e2m1[16] = uint[16](12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  const uint iq4[16] = uint[16](1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241);
  const uint iq1[8] = uint[8](2, 10, 18, 9, 0, 8, 16, 9);
  const uint iq2[8] = uint[8](51, 68, 86, 43, 35, 18, 0, 43);
  const uint iq3_xxs[16] = uint[16](33, 37, 41, 45, 49, 53, 57, 62, 29, 25, 21, 17, 13, 9, 5, 0);
  const uint iq3_s[16] = uint[16](16, 18, 20, 22, 24, 26, 28, 30, 14, 12, 10, 8, 6, 4, 2, 0);
  if (kCodes == kE2M1) return e2m1[code];
  if (kCodes == kIq1) return iq1[code];
  if (kCodes == kIq2) return iq2[code];
  if (kCodes == kIq3Xxs) return iq3_xxs[code];
  return kCodes == kIq3S ? iq3_s[code] : iq4[code];
}

uint values_of(uint codes) {
  uint values = 0;
  [[unroll]] for (uint i = 0; i < 4; ++i) values |= value_of(codes >> (8 * i) & 255u) << (8 * i);
  return values;
}

// Codes 4q to 4q + 3 of a group; `part` is the group's place in its 32 values.
uint codes_of(Raw raw, uint part, uint q) {
  if (kCodes == kByte) return raw.low[q];
  const uint quad = kGroup == 32 ? q : 4 * part + q;
  if (kInPairs) {
    // A plane has the pairs of 16 values. Groups of 16 have loaded theirs only.
    const uint plane = kGroup == 32 ? raw.low[quad / 4] : raw.low[0];
    uint codes = plane >> (2 * (quad & 3)) & 0x03030303u;
    if (kThirdBit) codes |= (raw.high >> quad & 0x01010101u) << 2;
    return kTabled ? values_of(codes) : codes;
  }
  const uint both = raw.low[q & 3];
  const uint low = (quad < 4 ? both : both >> 4) & 0x0f0f0f0fu;
  if (kCodes == kNibble5) return low | (raw.high >> quad & 0x01010101u) << 4;
  if (kCodes == kNibble6) return low | (raw.high >> (2 * (q & 3)) & 0x03030303u) << 4;
  return kTabled ? values_of(low) : low;
}

// Whether products with a row's scale d may meet subnormal numbers. Scales and minima of weights are multiples of 2^-24,
// halves times integers, or of 2^(-24 - kShift), and d has 24 bits: from d = 2^-78 times 2^kShift on every product, and so
// every total, is a multiple of 2^-125.
// MXFP4's scales are powers of two as small as 2^-127.
// By bits, as a device may compare subnormal numbers as zeros.
bool meets_subnormals(float d) {
  return kScales == kExponent || floatBitsToUint(d) - 1u < floatBitsToUint(power_of_two(kShift - 78)) - 1u;
}
