#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// What fused multiply-adds of float32 give: eight chains of them in each invocation.

layout(local_size_x = 256) in;
layout(push_constant) uniform Push {
  Floats to;
  uint rounds;
  uint seed;
} p;

void main() {
  // Within [1, 2]: neither infinite nor subnormal, whatever the rounds.
  const float factor = 0.5, offset = 0.5 + float(p.seed & 7u) * 0.0625;
  float sums[8];
  [[unroll]] for (int i = 0; i < 8; ++i) sums[i] = 1.0 + float(gl_LocalInvocationIndex + i) * 0.001;
  for (uint round = 0; round < p.rounds; ++round)
    [[unroll]] for (int i = 0; i < 8; ++i) sums[i] = fma(sums[i], factor, offset);
  float all = 0.0;
  [[unroll]] for (int i = 0; i < 8; ++i) all += sums[i];
  if (all == 0.12345) p.to.at[0] = all;
}
