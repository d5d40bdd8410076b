#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// What memory gives: every invocation reads pieces that lie `stride` apart, and writes only if their xor is a value that
// it has not.

layout(local_size_x = 256) in;
layout(push_constant) uniform Push {
  Pieces from;
  Words to;
  uint count;   // of an invocation
  uint stride;  // in pieces
} p;

void main() {
  uvec4 sum = uvec4(0);
  for (uint i = 0; i < p.count; i += 8) {
    uvec4 pieces[8];
    [[unroll]] for (uint j = 0; j < 8; ++j) pieces[j] = p.from.at[gl_GlobalInvocationID.x + (i + j) * p.stride];
    [[unroll]] for (uint j = 0; j < 8; ++j) sum ^= pieces[j];
  }
  if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x1badcafeu) p.to.at[0] = 1;
}
