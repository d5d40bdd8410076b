#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "../types.glsl"

// Which element of an accumulator an invocation holds where: its place, as linear_matrices.comp needs it.

layout(local_size_x_id = 9) in;
layout(constant_id = 9) const uint kThreads = 32;
layout(constant_id = 10) const uint kSubgroup = 32;
layout(constant_id = 11) const uint kM = 16;
layout(constant_id = 12) const uint kN = 8;

layout(push_constant) uniform Push {
  Ints places;  // [elements of an invocation][invocation]: 16 output + row of x
} p;

shared int table[kM * kN];

void main() {
  for (uint i = gl_LocalInvocationID.x; i < kM * kN; i += kThreads) table[i] = int(i / kN * 16 + i % kN);
  barrier();
  coopmat<int, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> places;
  coopMatLoad(places, table, 0, kN, gl_CooperativeMatrixLayoutRowMajor);
  for (uint e = 0; e < kM * kN / kSubgroup; ++e) p.places.at[e * kSubgroup + gl_SubgroupInvocationID] = places[e];
}
