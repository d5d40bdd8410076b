#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "../types.glsl"

// What cooperative matrices of F16 that add in F32 give: eight chains of sums in each subgroup.

layout(local_size_x = 4 * DLLM_SUBGROUP) in;
const uint kM = DLLM_M, kN = DLLM_N, kK = DLLM_K;

layout(push_constant) uniform Push {
  Floats to;
  uint rounds;
  uint seed;
} p;

void main() {
  coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a =
      coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA>(float16_t(p.seed) * float16_t(0.001));
  coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b =
      coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB>(float16_t(p.seed) * float16_t(0.01));
  coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sums[8];
  [[unroll]] for (int i = 0; i < 8; ++i)
    sums[i] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(float(i));
  for (uint round = 0; round < p.rounds; ++round)
    [[unroll]] for (int i = 0; i < 8; ++i) sums[i] = coopMatMulAdd(a, b, sums[i]);
  float all = 0.0;
  [[unroll]] for (int i = 0; i < 8; ++i) all += sums[i][0];
  if (all == 0.12345) p.to.at[0] = all;
}
