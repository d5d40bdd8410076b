#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// op::Add.

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  Floats a;
  Floats b;
  Floats result;  // [rows][width], as a and b
  uint width;
  uint zero;
} p;

#include "exact.glsl"

void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i >= p.width) return;
  const uint at = gl_WorkGroupID.y * p.width + i;
  p.result.at[at] = add(p.a.at[at], p.b.at[at]);
}
