#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// Rows of numbers as they are, in the given order: op::GatherScored, and the rows of embeddings that the host looked up.

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  Words from;
  Ints order;  // [rows], if it has one
  Words to;    // [rows][stride]
  uint width;
  uint stride;
  uint has_order;
} p;

void main() {
  const uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
  if (i >= p.width) return;
  const uint source = p.has_order != 0 ? uint(p.order.at[row]) : row;
  p.to.at[row * p.stride + i] = p.from.at[source * p.width + i];
}
