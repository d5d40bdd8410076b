#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// The reduction of op::ScoreHead: from the logits of a chunk of 1,024 tokens to their best two and their sums, in the
// order of operations of src/cpu/kernels/reduce-inl.h (arg_max, exp_sums). A workgroup reduces one chunk of one row. The
// host adds tokens with rules and merges chunks in their order (cpu::ScoreHead).

layout(local_size_x = 64) in;
const uint kChunk = 1024;
const uint kNone = 0xffffffffu;

struct ReduceRow {
  double beta;
  uint asked;  // tokens whose logits are asked for
  uint whole;  // 1: the host reduces this row
};
layout(buffer_reference, std430, buffer_reference_align = 8) buffer ReduceRows { ReduceRow at[]; };

struct ReducedChunk {
  uint top;
  float top_logit;
  uint second;
  float second_logit;
  double rest;
  double weighted;
};
layout(buffer_reference, std430, buffer_reference_align = 8) buffer ReducedChunks { ReducedChunk at[]; };

layout(push_constant) uniform Push {
  Floats logits;  // [rows][width]
  ReduceRows rows;
  Words asked;           // [rows][most_asked], with kRuled for those that are left out
  ReducedChunks result;  // [rows][chunks]
  Floats answers;        // [rows][most_asked]
  uint width;            // tokens of `logits`
  uint first;            // of the vocabulary
  uint chunks;           // of the vocabulary
  uint most_asked;
  float cap;  // 0: none
  float twice;
  uint zero;
} p;
const uint kRuled = 0x80000000u;

#include "exact.glsl"
#include "functions.glsl"
#include "float64.glsl"

shared float z[kChunk];
shared double terms[kChunk];
shared uint best[64];
shared uint next[64];
shared double sums[16];

// 2^200, which keeps the low parts of small terms above the subnormal numbers, and its inverse.
double scale_of(bool up) { return packDouble2x32(uvec2(0, up ? 0x4c700000u : 0x33700000u)); }

float capped(float x) {
  if (p.cap == 0.0) return x;
  return multiply(p.cap, subtract(1.0, divide(2.0, add(1.0, exponential(multiply(x, p.twice))))));
}

// Larger logit, then lower token; NaN never.
bool better(uint a, uint b) {
  if (a == kNone || b == kNone) return a != kNone;
  return z[a] > z[b] || (z[a] == z[b] && a < b);
}

double distance(uint i, float top, double beta) {
  precise double d = (wide(z[i]) - wide(top)) * beta;
  return d;
}

// Sums of eight lanes, as reduce_add() adds them.
double tree(uint from) {
  double t[4];
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    precise double sum = sums[from + i] + sums[from + i + 4];
    t[i] = sum;
  }
  precise double result = (t[0] + t[2]) + (t[1] + t[3]);
  return result;
}

void find_best(uint lane, uint size) {
  uint a = kNone, b = kNone;
  for (uint i = lane; i < size; i += 64) {
    if (isnan(z[i])) continue;
    if (better(i, a)) {
      b = a;
      a = i;
    } else if (better(i, b)) {
      b = i;
    }
  }
  best[lane] = a;
  next[lane] = b;
  for (uint half_size = 32; half_size > 0; half_size /= 2) {
    barrier();
    if (lane < half_size) {
      const uint a = best[lane], b = best[lane + half_size];
      const bool keeps = better(a, b) || b == kNone;
      best[lane] = keeps ? a : b;
      const uint loser = keeps ? b : a, second = keeps ? next[lane] : next[lane + half_size];
      next[lane] = better(loser, second) ? loser : second;
    }
  }
  barrier();
}

void main() {
  const uint lane = gl_LocalInvocationID.x, chunk = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
  const ReduceRow plan = p.rows.at[row];
  if (plan.whole != 0) return;
  const uint begin = chunk * kChunk, size = min(kChunk, p.width - begin), first = p.first + begin;
  for (uint i = lane; i < size; i += 64) z[i] = capped(p.logits.at[row * p.width + begin + i]);
  barrier();
  for (uint a = lane; a < plan.asked; a += 64) {
    const uint token = (p.asked.at[row * p.most_asked + a] & ~kRuled) - first;
    if (token < size) p.answers.at[row * p.most_asked + a] = z[token];
  }
  barrier();
  for (uint a = lane; a < plan.asked; a += 64) {
    const uint asked = p.asked.at[row * p.most_asked + a], token = (asked & ~kRuled) - first;
    if ((asked & kRuled) != 0 && token < size) z[token] = bits_of(0x7fc00000u);
  }
  barrier();
  find_best(lane, size);
  const uint at = row * p.chunks + first / kChunk, top = best[0], second = next[0];
  if (top == kNone) {
    if (lane == 0) p.result.at[at] = ReducedChunk(kNone, 0.0, kNone, 0.0, 0.0lf, 0.0lf);
    return;
  }
  const float most = z[top];
  // Equal infinities are at distance 0, all else is infinitely far.
  const bool infinite = isinf(most);
  for (uint i = lane; i < size; i += 64) {
    double term = 0.0lf;
    if (i != top) {
      if (infinite) {
        if (z[i] == most) term = 1.0lf;
      } else {
        const double d = distance(i, most, plan.beta);
        if (d > -708.0lf) term = exponential64(d);
      }
    }
    terms[i] = term;
  }
  barrier();
  // A lane of the definition each; the second eight weigh their terms.
  if (lane < 16) {
    double sum = 0.0lf;
    for (uint i = lane % 8; i < size; i += 8) {
      if (lane < 8) {
        precise double more = sum + terms[i];
        sum = more;
      } else if (terms[i] > 0.0lf && !infinite) {
        precise double scaled = terms[i] * scale_of(true);
        sum = fused64(distance(i, most, plan.beta), scaled, sum);
      }
    }
    sums[lane] = sum;
  }
  barrier();
  if (lane != 0) return;
  precise double weighted = tree(8) * scale_of(false);
  p.result.at[at] = ReducedChunk(first + top, most, second == kNone ? kNone : first + second,
                                 second == kNone ? 0.0 : z[second], tree(0), weighted);
}
