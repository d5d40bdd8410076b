#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// op::RmsNorm. A workgroup normalises one slice of a row. Its first 16 invocations are the lanes of the kernels' sum; all
// of them bring what those read, and write.

layout(local_size_x = 256) in;
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

const uint kPart = 2048;
shared float part[kPart];
shared float squares[16];

void main() {
  const uint invocation = gl_LocalInvocationID.x;
  const uint base = (gl_WorkGroupID.y * p.groups + gl_WorkGroupID.x) * p.slice;
  float sum = 0.0;
  for (uint first = 0; first < p.slice; first += kPart) {
    const uint count = min(kPart, p.slice - first);
    [[unroll]] for (uint i = 0; i < kPart; i += 256)
      if (i + invocation < count) part[i + invocation] = p.x.at[base + first + i + invocation];
    barrier();
    if (invocation < 16) {
      uint i = invocation;
      // Eight at a time, so that their loads do not wait for each other.
      for (; i + 112 < count; i += 128) {
        float eight[8];
        [[unroll]] for (uint j = 0; j < 8; ++j) eight[j] = part[i + 16 * j];
        [[unroll]] for (uint j = 0; j < 8; ++j) sum = fused(eight[j], eight[j], sum);
      }
      for (; i < count; i += 16) sum = fused(part[i], part[i], sum);
    }
    barrier();
  }
  if (invocation < 16) squares[invocation] = sum;
  barrier();
  // The tree of the kernels' reduce_add(): i with i + 8, then 4, 2, 1.
  float tree[16];
  [[unroll]] for (int i = 0; i < 16; ++i) tree[i] = squares[i];
  [[unroll]] for (int half_width = 8; half_width > 0; half_width /= 2)
    [[unroll]] for (int i = 0; i < half_width; ++i) tree[i] = add(tree[i], tree[i + half_width]);
  const float inverse = divide(1.0, root(add(divide(tree[0], float(p.slice)), p.epsilon)));
  for (uint i = invocation; i < p.slice; i += 256) {
    const float normal = multiply(p.x.at[base + i], inverse);
    p.result.at[base + i] = p.has_gain != 0 ? multiply(normal, p.gain.at[i]) : normal;
  }
}
