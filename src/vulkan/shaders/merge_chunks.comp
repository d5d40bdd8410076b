#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "unroll.glsl"

// Merges the chunks of a scored row to the prediction that a rule of commits reads, and keeps the chunks for the host.
// Chunks are merged in any order: what is too close to call by it is left to the host (commit_rows.comp).

layout(local_size_x = 64) in;
const uint kNone = 0xffffffffu;

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
  UnrollState state;
  UnrollSequences sequences;
  UnrollRows rows;
  ReducedChunks chunks;  // [rows][count]
  Floats answers;        // [rows][most_asked]
  Words asked;           // [rows][most_asked]
  RowCandidates candidates;
  Pieces kept;  // for each pass: the chunks and answers of `room` rows, and what was committed
  uint count;
  uint most_asked;
  uint room;
  uint pass_pieces;
  uint zero;
} p;
const uint kRuled = 0x80000000u;

#include "exact.glsl"
#include "float64.glsl"

shared uint tops[64];
shared float logits[64];
shared double rests[64];

double exponential_of(float z, float top) {
  const double d = wide(z) - wide(top);
  return d > -708.0lf ? exponential64(d) : 0.0lf;
}

// Adds the best token of some tokens, and the sum of the others by it, to those of others.
void merge_into(inout uint top, inout float logit, inout double rest, uint other, float other_logit,
                double other_rest) {
  if (other == kNone) return;
  const bool leads = top != kNone && (logit > other_logit || (logit == other_logit && top < other));
  if (top == kNone) {
    rest = other_rest;
  } else if (leads) {
    rest += exponential_of(other_logit, logit) * (1.0lf + other_rest);
  } else {
    rest = other_rest + exponential_of(logit, other_logit) * (1.0lf + rest);
  }
  if (leads) return;
  top = other;
  logit = other_logit;
}

void keep(uint lane, uint row) {
  Pieces chunks = Pieces(uvec2(p.chunks)), answers = Pieces(uvec2(p.answers));
  const uint pieces = 2 * p.count, asked = p.most_asked / 4, base = p.state.pass * p.pass_pieces;
  for (uint i = lane; i < pieces; i += 64) p.kept.at[base + row * pieces + i] = chunks.at[row * pieces + i];
  for (uint i = lane; i < asked; i += 64)
    p.kept.at[base + p.room * pieces + row * asked + i] = answers.at[row * asked + i];
}

void main() {
  const uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.y;
  keep(lane, row);
  if (row >= p.state.rows) return;
  const int sequence = p.rows.at[row].sequence;
  if (sequence < 0) return;
  uint top = kNone;
  float logit = 0.0;
  double rest = 0.0lf;
  for (uint i = lane; i < p.count; i += 64) {
    const ReducedChunk chunk = p.chunks.at[row * p.count + i];
    merge_into(top, logit, rest, chunk.top, chunk.top_logit, chunk.rest);
  }
  tops[lane] = top;
  logits[lane] = logit;
  rests[lane] = rest;
  for (uint half_size = 32; half_size > 0; half_size /= 2) {
    barrier();
    if (lane >= half_size) continue;
    const uint other = lane + half_size;
    merge_into(top, logit, rest, tops[other], logits[other], rests[other]);
    tops[lane] = top;
    logits[lane] = logit;
    rests[lane] = rest;
  }
  if (lane != 0) return;
  uint fit = top == kNone || isinf(logit) ? kUnsure : kEligible;
  const uint rules = p.sequences.at[sequence].rules, counted = p.sequences.at[sequence].counted;
  for (uint i = 0; i < rules; ++i) {
    const float z = p.answers.at[row * p.most_asked + i];
    if ((counted >> i & 1u) == 0u || isnan(z)) continue;
    const uint token = p.asked.at[row * p.most_asked + i] & ~kRuled;
    if (z > logit || (z == logit && token < top)) {
      if (fit == kEligible) fit = kWaits;
    } else {
      rest += exponential_of(z, logit);
    }
  }
  if (isnan(rest) || isinf(rest)) fit = kUnsure;
  p.candidates.at[row] = RowCandidate(top, fit, rest);
}
