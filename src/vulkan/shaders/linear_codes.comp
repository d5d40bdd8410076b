#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// op::Linear and the logits of op::ScoreHead with packed codes (src/cpu/kernels/packed.h has the layout of panels): every
// quantized type. An invocation computes one output of kRows rows. The order of operations is that of int8_tile() in
// src/cpu/kernels/linear-inl.h: integer sums of a group of 16 or 32 products, then one fused multiply-add.

layout(local_size_x = 64) in;
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

uint byte_at(uint base, uint offset) { return p.panels.at[base + offset / 4] >> (8 * (offset % 4)) & 255u; }
float half_at(uint base, uint offset) { return unpackHalf2x16(p.panels.at[base + offset / 4])[offset / 2 % 2]; }

float scale_of(uint base, uint group, uint lane) {
  if (kScales == kHalf) return half_at(base, p.scale + (group * 16 + lane) * 2);
  const uint integer = byte_at(base, p.scale + group * 16 + lane);
  if (kScales == kExponent)  // half of E8M0's value: codes are doubled
    return uintBitsToFloat(integer > 1 ? (integer - 1) << 23 : integer == 1 ? 0x00400000u : 0x00200000u);
  const float super = half_at(base, p.super + (group * kGroup / 256 * 16 + lane) * 2);
  if (kScales == kSuperPairs) return multiply(super, float(integer & 15u));
  return multiply(super, float(kHasMinimum ? int(integer) : bitfieldExtract(int(integer), 0, 8)));
}

float minimum_of(uint base, uint group, uint lane) {
  if (kScales == kHalf) return subtract(0.0, half_at(base, p.minimum + (group * 16 + lane) * 2));
  const float super = half_at(base, p.super_minimum + (group * kGroup / 256 * 16 + lane) * 2);
  if (kScales == kSuperPairs) return multiply(super, float(byte_at(base, p.scale + group * 16 + lane) >> 4));
  return multiply(super, float(byte_at(base, p.minimum + group * 16 + lane)));
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

// Four codes of output `lane`: those of k from 32 block + 4 quad on.
uint codes_of(uint base, uint block, uint quad, uint lane) {
  if (kCodes == kByte) return p.panels.at[base + block * 128 + 16 * quad + lane];
  if (kCodes == kTwoBits || kCodes == kThreeBits) {
    const uint pair = p.panels.at[base + block * 32 + 16 * (quad / 4) + lane] >> (2 * (quad & 3)) & 0x03030303u;
    if (kCodes == kTwoBits) return pair;
    return pair | (p.panels.at[base + p.high / 4 + block * 16 + lane] >> quad & 0x01010101u) << 2;
  }
  const uint both = p.panels.at[base + block * 64 + 16 * (quad & 3) + lane];
  const uint low = (quad < 4 ? both : both >> 4) & 0x0f0f0f0fu;
  if (kCodes == kNibble5)
    return low | (p.panels.at[base + p.high / 4 + block * 16 + lane] >> quad & 0x01010101u) << 4;
  if (kCodes == kNibble6)
    return low | (p.panels.at[base + p.high / 4 + block * 32 + 16 * (quad / 4) + lane] >> (2 * (quad & 3)) & 0x03030303u) << 4;
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

int dot(uint codes, uint values, int sum) {
  [[unroll]] for (int i = 0; i < 4; ++i)
    sum += int(codes >> (8 * i) & 255u) * bitfieldExtract(int(values), 8 * i, 8);
  return sum;
}

void main() {
  const uint output_index = gl_GlobalInvocationID.x;
  if (output_index >= p.n) return;
  const Part part = part_of_group();
  const uint base = part.base + output_index / 16 * p.panel_words, lane = output_index % 16;
  const uint blocks = p.k / 32, halves = 32 / kGroup;
  float total[8];
  uint row_of[8];
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    total[r] = 0.0;
    row_of[r] = min(part.source + r, part.last);
  }
  for (uint group = 0; group < blocks * halves; ++group) {
    const uint block = group / halves, quad = group % halves * 4, quads = kGroup / 4;
    const float scale = scale_of(base, group, lane);
    const float minimum = kHasMinimum ? minimum_of(base, group, lane) : 0.0;
    int sum[8];
    int dots[8];
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      const uint at = row_of[r] * (p.k / 16) + group * (kGroup / 16);
      sum[r] = p.sums.at[at] + (kGroup == 32 ? p.sums.at[at + 1] : 0);
      dots[r] = -kZero * sum[r];
    }
    [[unroll]] for (uint q = 0; q < 8; ++q) {
      if (q >= quads) break;
      const uint codes = codes_of(base, block, quad + q, lane);
      [[unroll]] for (uint r = 0; r < kRows; ++r)
        dots[r] = dot(codes, p.values.at[row_of[r] * (p.k / 4) + block * 8 + quad + q], dots[r]);
    }
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      const float d = p.scales.at[row_of[r] * blocks + block];
      total[r] = fused(float(dots[r]), multiply(scale, d), total[r]);
      if (kHasMinimum) total[r] = fused(minimum, multiply(-d, float(sum[r])), total[r]);
    }
  }
  [[unroll]] for (uint r = 0; r < kRows; ++r)
    if (part.source + r <= part.last)
      p.result.at[(part.first + r) * p.n + output_index] = p.has_bias != 0 ? add(total[r], p.bias.at[output_index]) : total[r];
}
