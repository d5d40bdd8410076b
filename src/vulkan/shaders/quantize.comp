#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// Rows quantized to int8 with a scale per 32 values, for products with packed codes (KernelSet::quantize_row). An
// invocation quantizes one block.

layout(local_size_x = 64) in;
layout(constant_id = 2) const bool kExactScales = true;
layout(push_constant) uniform Push {
  Floats x;      // [rows][k]
  Words values;  // [rows][k / 4], four to a word
  Floats scales;  // [rows][k / 32]
  Ints sums;     // [rows][k / 16]
  uint k;
  uint zero;
} p;

#include "exact.glsl"

void main() {
  const uint block = gl_GlobalInvocationID.x, blocks = p.k / 32;
  if (block >= blocks) return;
  const uint at = gl_WorkGroupID.y * blocks + block;
  // As integers, absolute values order with NaN above infinity, so that neither is missed.
  int peak = 0;
  for (uint i = 0; i < 32; ++i) peak = max(peak, floatBitsToInt(p.x.at[32 * at + i]) & 0x7fffffff);
  const float most = intBitsToFloat(peak);
  float scale = 0.0, inverse = 0.0;
  // 1 / scale would overflow for smaller blocks, which are zero.
  if (!(most < power_of_two(-120))) {
    if (kExactScales) {
      scale = divide(most, 127.0);
      inverse = divide(127.0, most);
    } else {
      // Up to 1, 1.25, 1.5 or 1.75 times a power of two.
      uint bits = floatBitsToUint(divide(most, 127.0));
      if (bits < 0x7f800000u) bits = (bits + 0x1fffffu) & ~0x1fffffu;
      scale = uintBitsToFloat(bits);
      inverse = divide(1.0, scale);
    }
  }
  p.scales.at[at] = scale;
  int sum = 0;
  for (uint word = 0; word < 8; ++word) {
    uint packed = 0;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      float scaled = multiply(p.x.at[32 * at + 4 * word + i], inverse);
      scaled = scaled > -127.0 ? scaled : -127.0;
      scaled = scaled < 127.0 ? scaled : 127.0;
      const int code = floatBitsToInt(add(scaled, kMagic)) - floatBitsToInt(kMagic);
      sum += code;
      packed |= uint(code & 255) << (8 * i);
    }
    p.values.at[8 * at + word] = packed;
    if (word % 4 == 3) {
      p.sums.at[2 * at + word / 4] = sum;
      sum = 0;
    }
  }
}
