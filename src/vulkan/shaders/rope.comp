#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// op::Rope. An invocation turns a pair, or copies a number beyond the turned dimensions. Products and sums round apart.

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  Floats x;     // [rows][heads][head_dim]
  Floats cosines;  // [rows][dims / 2], of the rows' positions
  Floats sines;
  Floats result;
  uint heads;
  uint head_dim;
  uint dims;
  uint interleaved;
  uint zero;
} p;

#include "exact.glsl"

void main() {
  const uint row = gl_WorkGroupID.y, pairs = p.dims / 2, items = p.head_dim - pairs;
  const uint i = gl_GlobalInvocationID.x, item = i % items;
  if (i >= p.heads * items) return;
  const uint base = (row * p.heads + i / items) * p.head_dim;
  if (item >= pairs) {
    const uint at = base + pairs + item;
    p.result.at[at] = p.x.at[at];
    return;
  }
  const uint first = base + (p.interleaved != 0 ? 2 * item : item);
  const uint second = first + (p.interleaved != 0 ? 1 : pairs);
  const float a = p.x.at[first], b = p.x.at[second];
  const float c = p.cosines.at[row * pairs + item], s = p.sines.at[row * pairs + item];
  p.result.at[first] = subtract(multiply(a, c), multiply(b, s));
  p.result.at[second] = add(multiply(b, c), multiply(a, s));
}
