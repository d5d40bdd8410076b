// Products with packed codes: the arguments, and how panels are read (src/cpu/kernels/packed.h has their layout). Words of
// a panel are loaded first (Raw) and decoded later, so that loads can run ahead. Included after types.glsl.

layout(constant_id = 2) const uint kCodes = 2;   // cpu::Codes
layout(constant_id = 3) const uint kScales = 0;  // cpu::Scales
layout(constant_id = 4) const bool kHasMinimum = false;
layout(constant_id = 5) const uint kGroup = 32;  // values of a scale
layout(constant_id = 6) const int kZero = 8;     // of codes
const uint kTwoBits = 0, kThreeBits = 1, kNibble = 2, kNibble5 = 3, kNibble6 = 4, kByte = 5, kE2M1 = 6, kIq4 = 7;
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
  } else if (kCodes == kTwoBits || kCodes == kThreeBits) {
    raw.low[0] = p.panels.at[base + block * 32 + 16 * part + lane];
  } else {
    [[unroll]] for (uint q = 0; q < 4; ++q) raw.low[q] = p.panels.at[base + block * 64 + 16 * q + lane];
  }
  if (kCodes == kNibble5 || kCodes == kThreeBits) raw.high = p.panels.at[base + p.high / 4 + block * 16 + lane];
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
  const float super = half_of(raw.super, lane);
  if (kScales == kSuperPairs) return multiply(super, float(integer & 15u));
  return multiply(super, float(kHasMinimum ? int(integer) : bitfieldExtract(int(integer), 0, 8)));
}

float minimum_of(Raw raw, uint lane) {
  if (kScales == kHalf) return subtract(0.0, half_of(raw.minimum, lane));
  const float super = half_of(raw.super_minimum, lane);
  if (kScales == kSuperPairs) return multiply(super, float(byte_of(raw.scale, lane) >> 4));
  return multiply(super, float(byte_of(raw.minimum, lane)));
}

// E2M1 doubled, plus 12.
uint value_of_e2m1(uint code) {
  const uint codes[16] = uint[16](12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  return codes[code];
}

// IQ4_NL's values plus 128.
uint value_of_iq4(uint code) {
  const uint codes[16] = uint[16](1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241);
  return codes[code];
}

// Codes 4q to 4q + 3 of a group; `part` is the group's place in its 32 values.
uint codes_of(Raw raw, uint part, uint q) {
  if (kCodes == kByte) return raw.low[q];
  const uint quad = kGroup == 32 ? q : 4 * part + q;
  if (kCodes == kTwoBits || kCodes == kThreeBits) {
    const uint pair = raw.low[0] >> (2 * q) & 0x03030303u;
    return kCodes == kTwoBits ? pair : pair | (raw.high >> quad & 0x01010101u) << 2;
  }
  const uint both = raw.low[q & 3];
  const uint low = (quad < 4 ? both : both >> 4) & 0x0f0f0f0fu;
  if (kCodes == kNibble5) return low | (raw.high >> quad & 0x01010101u) << 4;
  if (kCodes == kNibble6) return low | (raw.high >> (2 * (q & 3)) & 0x03030303u) << 4;
  if (kCodes == kE2M1 || kCodes == kIq4) {
    uint values = 0;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      const uint code = low >> (8 * i) & 255u;
      values |= (kCodes == kE2M1 ? value_of_e2m1(code) : value_of_iq4(code)) << (8 * i);
    }
    return values;
  }
  return low;
}

// Whether products with a row's scale d may meet subnormal numbers. Scales and minima of weights are multiples of 2^-24,
// halves times integers, and d has 24 bits: from d = 2^-78 on every product, and so every total, is a multiple of 2^-125.
// MXFP4's scales are powers of two as small as 2^-127.
// By bits, as a device may compare subnormal numbers as zeros.
bool meets_subnormals(float d) {
  return kScales == kExponent || floatBitsToUint(d) - 1u < floatBitsToUint(power_of_two(-78)) - 1u;
}
