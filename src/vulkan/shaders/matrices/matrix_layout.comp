#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "../types.glsl"

// Which element of a matrix an invocation holds where: of accumulators, and of int8 operands A.

layout(local_size_x_id = 9) in;
layout(constant_id = 9) const uint kThreads = 32;
layout(constant_id = 10) const uint kSubgroup = 32;
layout(constant_id = 11) const uint kM = 16;
layout(constant_id = 12) const uint kN = 8;
layout(constant_id = 13) const uint kK = 32;

layout(push_constant) uniform Push {
  Ints places;  // [elements of an invocation][invocation]: 16 output + row of x
  Ints codes;   // likewise of A: 32 output + place in k
} p;

shared int table[kM * kN];
shared int8_t outputs[kM * kK];
shared int8_t inputs[kM * kK];

void main() {
  for (uint i = gl_LocalInvocationID.x; i < kM * kN; i += kThreads) table[i] = int(i / kN * 16 + i % kN);
  for (uint i = gl_LocalInvocationID.x; i < kM * kK; i += kThreads) {
    outputs[i] = int8_t(i / kK);
    inputs[i] = int8_t(i % kK);
  }
  barrier();
  coopmat<int, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> places;
  coopMatLoad(places, table, 0, kN, gl_CooperativeMatrixLayoutRowMajor);
  for (uint e = 0; e < kM * kN / kSubgroup; ++e) p.places.at[e * kSubgroup + gl_SubgroupInvocationID] = places[e];
  coopmat<int8_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> rows, columns;
  coopMatLoad(rows, outputs, 0, kK, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(columns, inputs, 0, kK, gl_CooperativeMatrixLayoutRowMajor);
  for (uint e = 0; e < kM * kK / kSubgroup; ++e)
    p.codes.at[e * kSubgroup + gl_SubgroupInvocationID] = 32 * int(rows[e]) + int(columns[e]);
}
