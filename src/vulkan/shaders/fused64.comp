#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// What the self-test of float64 looks at: an invocation computes one case.

layout(local_size_x = 64) in;
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Doubles { double at[]; };
layout(push_constant) uniform Push {
  Doubles cases;    // [count][3]
  Doubles results;  // [count][3]
  uint count;
  uint zero;
} p;

#include "float64.glsl"

void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i >= p.count) return;
  const double a = p.cases.at[3 * i], b = p.cases.at[3 * i + 1], c = p.cases.at[3 * i + 2];
  precise double product = a * b;
  precise double sum = a + c;
  p.results.at[3 * i] = fused64(a, b, c);
  p.results.at[3 * i + 1] = product;
  p.results.at[3 * i + 2] = sum;
}
