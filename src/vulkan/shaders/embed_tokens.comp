#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "unroll.glsl"

// The embeddings of tokens that a pass committed, for the rows that read them in the next one.

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  UnrollState state;
  UnrollRows rows;
  Words table;  // [vocabulary][width]
  Words to;     // [rows of the pass][width]
  uint width;
} p;

void main() {
  const uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
  if (p.state.halted != 0 || row >= p.state.rows || i >= p.width) return;
  const int token = p.rows.at[row].chosen, target = p.rows.at[row].target;
  if (token < 0 || target < 0) return;
  p.to.at[uint(target) * p.width + i] = p.table.at[uint(token) * p.width + i];
}
