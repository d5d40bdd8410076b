#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// op::RmsNorm. A workgroup normalises one slice of a row; its 16 invocations are the lanes of the kernels' sum.

layout(local_size_x = 16) in;
layout(push_constant) uniform Push {
  Floats x;     // [rows][groups][slice]
  Floats gain;  // [slice], if there is one
  Floats result;
  uint slice;
  uint groups;
  uint has_gain;
  float epsilon;
  uint zero;
} p;

#include "exact.glsl"

shared float squares[16];

void main() {
  const uint lane = gl_LocalInvocationID.x;
  const uint base = (gl_WorkGroupID.y * p.groups + gl_WorkGroupID.x) * p.slice;
  float sum = 0.0;
  for (uint i = lane; i < p.slice; i += 16) {
    const float x = p.x.at[base + i];
    sum = fused(x, x, sum);
  }
  squares[lane] = sum;
  barrier();
  // The tree of the kernels' reduce_add(): i with i + 8, then 4, 2, 1.
  float tree[16];
  [[unroll]] for (int i = 0; i < 16; ++i) tree[i] = squares[i];
  [[unroll]] for (int half_width = 8; half_width > 0; half_width /= 2)
    [[unroll]] for (int i = 0; i < half_width; ++i) tree[i] = add(tree[i], tree[i + half_width]);
  const float inverse = divide(1.0, root(add(divide(tree[0], float(p.slice)), p.epsilon)));
  for (uint i = lane; i < p.slice; i += 16) {
    const float normal = multiply(p.x.at[base + i], inverse);
    p.result.at[base + i] = p.has_gain != 0 ? multiply(normal, p.gain.at[i]) : normal;
  }
}
