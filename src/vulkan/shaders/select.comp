#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "rows.glsl"

// op::Select: rows of a canvas from one value, all others from another.

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  Words canvas;
  Words context;
  Words result;  // [rows][width]
  PlanRows rows;
  uint width;
} p;

void main() {
  const uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
  if (i >= p.width) return;
  const uint at = row * p.width + i;
  p.result.at[at] = (p.rows.at[row].kind & kOfCanvas) != 0 ? p.canvas.at[at] : p.context.at[at];
}
