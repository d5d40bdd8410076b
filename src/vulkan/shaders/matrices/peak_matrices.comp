#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "../types.glsl"

// What cooperative matrices of int8 give: eight chains of sums in each subgroup.

layout(local_size_x_id = 9) in;
layout(constant_id = 9) const uint kThreads = 128;
layout(constant_id = 10) const uint kSubgroup = 32;
layout(constant_id = 11) const uint kM = 16;
layout(constant_id = 12) const uint kN = 8;
layout(constant_id = 13) const uint kK = 32;

layout(push_constant) uniform Push {
  Ints to;
  uint rounds;
  uint seed;
} p;

void main() {
  coopmat<int8_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a =
      coopmat<int8_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA>(int8_t(p.seed));
  coopmat<int8_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b =
      coopmat<int8_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB>(int8_t(p.seed + 1));
  coopmat<int, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sums[8];
  [[unroll]] for (int i = 0; i < 8; ++i) sums[i] = coopmat<int, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(i);
  for (uint round = 0; round < p.rounds; ++round)
    [[unroll]] for (int i = 0; i < 8; ++i) sums[i] = coopMatMulAdd(a, b, sums[i]);
  int all = 0;
  [[unroll]] for (int i = 0; i < 8; ++i) all ^= sums[i][0];
  if (all == 0x1badcafe) p.to.at[0] = all;
}
