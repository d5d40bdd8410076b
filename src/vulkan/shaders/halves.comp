#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// Rows as F16 with a power of two each, for matrices/linear_halves.comp: the largest number of a row comes to lie between
// 2^14 and 2^15, so that rounding does not exceed F16, and numbers below 2^-28 of it are zeros: no half is subnormal. A row
// with an infinity or NaN is NaN; one whose numbers are all below 2^-112 is zero.

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  Floats x;      // [rows][k]
  Words halves;  // [rows][words], two to a word
  Floats scales;  // [rows]
  uint k;
  uint words;  // of a row: k / 2, rounded up to whole pieces; the rest is zeros
} p;

shared uint most[64];

const int kOne = 1 << 23;  // of an exponent

uint half_of(uint bits, int exponent) {
  int magnitude = int(bits & 0x7fffffffu) - exponent * kOne;
  if (magnitude < kOne) return 0;
  magnitude += 0xfff + (magnitude >> 13 & 1);  // to nearest, ties to even
  return uint(magnitude) >> 13 | (bits >> 16 & 0x8000u);
}

void main() {
  const uint row = gl_WorkGroupID.y, lane = gl_LocalInvocationID.x;
  uint own = 0;
  for (uint i = lane; i < p.k; i += 64) own = max(own, floatBitsToUint(p.x.at[row * p.k + i]) & 0x7fffffffu);
  most[lane] = own;
  barrier();
  for (uint others = 32; others > 0; others /= 2) {
    if (lane < others) most[lane] = max(most[lane], most[lane + others]);
    barrier();
  }
  const uint field = most[0] >> 23;
  const bool zero = field < 15, unordered = field == 255;
  if (lane == 0) p.scales.at[row] = uintBitsToFloat(unordered ? 0x7fc00000u : zero ? 0u : (field - 14) << 23);
  const int exponent = int(field) - 29;
  for (uint i = lane; i < p.words; i += 64) {
    uint word = 0;
    [[unroll]] for (uint j = 0; j < 2; ++j)
      if (2 * i + j < p.k && !zero && !unordered)
        word |= half_of(floatBitsToUint(p.x.at[row * p.k + 2 * i + j]), exponent) << (16 * j);
    p.halves.at[row * p.words + i] = word;
  }
}
