#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// op::Hadamard, in the order of operations of Hadamard::apply(): sums and differences at doubling distances, then the
// core's matrix, then the scale. A workgroup transforms one slice, in place in its result.

layout(local_size_x = 64) in;
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer SharedFloats { float at[]; };
layout(push_constant) uniform Push {
  Floats x;
  SharedFloats result;  // [rows][slices][order]
  Floats signs;         // [core][core]
  uint order;
  uint core;
  float scale;
  uint zero;
} p;

#include "exact.glsl"

const uint kMostCore = 64;

void wait_for_all() {
  memoryBarrierBuffer();
  barrier();
}

void main() {
  const uint lane = gl_LocalInvocationID.x;
  const uint base = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * p.order;
  for (uint i = lane; i < p.order; i += 64) p.result.at[base + i] = p.x.at[base + i];
  wait_for_all();
  for (uint distance = p.core; distance < p.order; distance *= 2) {
    for (uint pair = lane; pair < p.order / 2; pair += 64) {
      const uint first = base + pair / distance * 2 * distance + pair % distance;
      const float a = p.result.at[first], b = p.result.at[first + distance];
      p.result.at[first] = add(a, b);
      p.result.at[first + distance] = subtract(a, b);
    }
    wait_for_all();
  }
  if (p.core > 1) {
    for (uint block = lane; block < p.order / p.core; block += 64) {
      const uint first = base + block * p.core;
      float values[kMostCore];
      for (uint r = 0; r < p.core; ++r) values[r] = p.result.at[first + r];
      for (uint c = 0; c < p.core; ++c) {
        float sum = 0.0;
        for (uint r = 0; r < p.core; ++r) sum = fused(values[r], p.signs.at[r * p.core + c], sum);
        p.result.at[first + c] = sum;
      }
    }
    wait_for_all();
  }
  for (uint i = lane; i < p.order; i += 64) p.result.at[base + i] = multiply(p.result.at[base + i], p.scale);
}
