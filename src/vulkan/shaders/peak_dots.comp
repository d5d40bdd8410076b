#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// What integer dot products give: eight chains of them in each invocation.

layout(local_size_x = 256) in;
layout(push_constant) uniform Push {
  Ints to;
  uint rounds;
  uint seed;
} p;

spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4452)
int dot_bytes(uint values, uint codes, spirv_literal int format);

void main() {
  const uint seed = p.seed + gl_GlobalInvocationID.x;
  int sums[8];
  [[unroll]] for (int i = 0; i < 8; ++i) sums[i] = i;
  for (uint round = 0; round < p.rounds; ++round)
    [[unroll]] for (int i = 0; i < 8; ++i) sums[i] += dot_bytes(seed, uint(sums[(i + 1) % 8]), 0);
  int all = 0;
  [[unroll]] for (int i = 0; i < 8; ++i) all ^= sums[i];
  if (all == 0x1badcafe) p.to.at[0] = all;
}
