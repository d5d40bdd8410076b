#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// The end of op::Experts: the weighted sum over a row's experts, in ascending order.

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  Floats products;  // [rows][used][width]
  Floats route;     // [rows][2 used]
  Floats result;    // [rows][width]
  uint width;
  uint used;
  uint zero;
} p;

#include "exact.glsl"

void main() {
  const uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
  if (i >= p.width) return;
  float sum = 0.0;
  for (uint slot = 0; slot < p.used; ++slot)
    sum = fused(p.products.at[(row * p.used + slot) * p.width + i], p.route.at[row * 2 * p.used + p.used + slot], sum);
  p.result.at[row * p.width + i] = sum;
}
