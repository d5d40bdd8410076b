#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// The first half of op::Route: scores of all experts, and the keys by which they are chosen. A workgroup computes a row.

layout(local_size_x = 64) in;
layout(constant_id = 2) const bool kSoftmax = true;
layout(push_constant) uniform Push {
  Floats logits;  // [rows][experts]
  Floats bias;    // [experts], if there is one
  Floats scores;  // [rows][experts]
  Floats keys;
  uint experts;
  uint has_bias;
  uint grouped;
  uint zero;
} p;

#include "exact.glsl"
#include "double.glsl"
#include "functions.glsl"

shared Double total;

void main() {
  const uint lane = gl_LocalInvocationID.x, base = gl_WorkGroupID.y * p.experts;
  float top = uintBitsToFloat(0xff800000u);
  if (kSoftmax)
    for (uint e = 0; e < p.experts; ++e) top = top < p.logits.at[base + e] ? p.logits.at[base + e] : top;
  for (uint e = lane; e < p.experts; e += 64) {
    const float z = p.logits.at[base + e];
    p.scores.at[base + e] =
        kSoftmax ? exponential(subtract(z, top)) : divide(1.0, add(1.0, exponential(-z)));
  }
  if (kSoftmax) {
    memoryBarrierBuffer();
    barrier();
    if (lane == 0) {
      Double sum = double_of(0u, 0u);
      for (uint e = 0; e < p.experts; ++e) sum = sum64(sum, wide(exponential(subtract(p.logits.at[base + e], top))));
      total = sum;
    }
    barrier();
    for (uint e = lane; e < p.experts; e += 64) {
      const Double share = quotient64(wide(p.scores.at[base + e]), total);
      p.scores.at[base + e] = narrow(share);
    }
  }
  // Scores increase with logits, but rounding may make two of them equal: where nothing is added, logits decide.
  for (uint e = lane; e < p.experts; e += 64) {
    const float score = p.scores.at[base + e];
    p.keys.at[base + e] =
        p.has_bias != 0 ? add(score, p.bias.at[e]) : p.grouped != 0 ? score : p.logits.at[base + e];
  }
}
