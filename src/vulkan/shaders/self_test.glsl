#include "types.glsl"

// What the self-test looks at (self_test.h): an invocation computes one case by every operator. The first one also runs
// a long loop.

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  Floats cases;  // [count][3]
  Words halves;  // [count / 2], two numbers each
  Floats results;  // [count][8]
  Words loops;   // [1]
  uint count;
  uint rounds;
  uint zero;
} p;

#include "exact.glsl"

void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i >= p.count) return;
  const float a = p.cases.at[3 * i], b = p.cases.at[3 * i + 1], c = p.cases.at[3 * i + 2];
  const uint to = 8 * i;
  p.results.at[to] = fused(a, b, c);
  p.results.at[to + 1] = divide(a, b);
  p.results.at[to + 2] = root(abs(a));
  p.results.at[to + 3] = multiply(a, b);
  p.results.at[to + 4] = add(a, b);
  // Two roundings: no compiler may contract them.
  p.results.at[to + 5] = add(multiply(a, b), c);
  // A chain, whose conversions no compiler may drop.
  p.results.at[to + 6] = fused(fused(a, b, c), a, b);
  p.results.at[to + 7] = unpackHalf2x16(p.halves.at[i / 2])[i % 2];
  if (i == 0) {
    uint done = 0;
    for (uint round = 0; round < p.rounds; ++round) done += (p.cases.at[round % 3] == a) ? 1 : 1 + p.zero;
    p.loops.at[0] = done;
  }
}
