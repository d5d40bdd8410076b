#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// op::Glu: SiLU or GELU (tanh form) of a gate, times `up` if there is one.

layout(local_size_x = 64) in;
layout(constant_id = 2) const bool kGelu = false;
layout(push_constant) uniform Push {
  Floats gate;
  Floats up;
  Floats result;  // [rows][width]
  uint width;
  uint has_up;
  uint zero;
} p;

#include "exact.glsl"
#include "functions.glsl"

void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i >= p.width) return;
  const uint at = gl_WorkGroupID.y * p.width + i;
  const float g = p.gate.at[at];
  // GELU is x / (1 + e^-2u), with -2 sqrt(2/pi) and that times 0.044715 as constants (kernels: geglu).
  const float exponent =
      kGelu ? multiply(g, fused(multiply(g, g), bits_of(0xbd922279u), bits_of(0xbfcc422au))) : subtract(0.0, g);
  const float activated = divide(g, add(1.0, exponential(exponent)));
  p.result.at[at] = p.has_up != 0 ? multiply(activated, p.up.at[at]) : activated;
}
