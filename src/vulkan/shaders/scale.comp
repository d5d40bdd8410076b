#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "rows.glsl"

// op::Scale: a factor for rows of a canvas, and one for all others.

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  Floats x;
  Floats result;  // [rows][width]
  PlanRows rows;
  uint width;
  float context;
  float canvas;
  uint zero;
} p;

#include "exact.glsl"

void main() {
  const uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
  if (i >= p.width) return;
  const uint at = row * p.width + i;
  p.result.at[at] = multiply((p.rows.at[row].kind & kOfCanvas) != 0 ? p.canvas : p.context, p.x.at[at]);
}
