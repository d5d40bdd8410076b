#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "unroll.glsl"

// What the decoder's rule (CommitRule) commits of a pass, so that another pass may follow before the host has seen this
// one. The host decides the same from the same chunks and has the last word. No pass follows one in which a choice is
// too close to call, nothing is committed, no mask is left, or the answer may have ended.

layout(local_size_x = 64) in;
const uint kMostRows = 1024;
const int kNever = 0x7fffffff;

layout(push_constant) uniform Push {
  UnrollState state;
  UnrollSequences sequences;
  UnrollRows rows;
  RowCandidates candidates;
  Words counts;  // what a pass begins with: its counts, and from word 16 on the workgroups of its dispatches
  Ints kept;     // for each pass, [room]: tokens that it committed
  uint room;
  uint pass_words;
} p;

shared double rests[kMostRows];
shared uint fits[kMostRows];
shared double lows[64];
shared uint unsure, committed;
shared int first_mask, first_stop;

const double kHuge = 1e300lf;
// Far more than what the order of sums and the device's exponential make of a confidence.
const double kClose = 1e-9lf;

double least(uint lane, double mine) {
  lows[lane] = mine;
  for (uint half_size = 32; half_size > 0; half_size /= 2) {
    barrier();
    if (lane < half_size) lows[lane] = min(lows[lane], lows[lane + half_size]);
  }
  barrier();
  const double all = lows[0];
  barrier();
  return all;
}

bool stops_at(uint sequence, uint token) {
  for (uint i = 0; i < p.sequences.at[sequence].stops; ++i)
    if (p.sequences.at[sequence].stop[i] == token) return true;
  return false;
}

void load(uint lane, uint first, uint count) {
  for (uint i = lane; i < count; i += 64) {
    const RowCandidate candidate = p.candidates.at[first + i];
    const bool open = p.rows.at[first + i].open != 0;
    rests[i] = candidate.rest;
    fits[i] = open && candidate.fit == kEligible ? 1u : 0u;
    if (open && candidate.fit == kUnsure) atomicOr(unsure, 1u);
  }
  barrier();
}

// Marks (2) the `most` eligible rows with the least rests; of equal ones none is chosen.
void take_best(uint lane, uint count, uint most) {
  double worst = -1.0lf, left = kHuge;
  bool taken[kMostRows / 64];
  for (uint i = lane, slot = 0; i < count; i += 64, ++slot) {
    taken[slot] = false;
    if (fits[i] == 0) continue;
    uint before = 0;
    for (uint j = 0; j < count; ++j)
      if (fits[j] != 0 && (rests[j] < rests[i] || (rests[j] == rests[i] && j < i))) ++before;
    taken[slot] = before < most;
    if (taken[slot]) {
      worst = max(worst, rests[i]);
    } else {
      left = min(left, rests[i]);
    }
  }
  barrier();
  for (uint i = lane, slot = 0; i < count; i += 64, ++slot)
    if (taken[slot]) fits[i] = 2;
  const double in_worst = -least(lane, -worst), out_best = least(lane, left);
  if (lane == 0 && out_best < kHuge && out_best - in_worst <= kClose * out_best) atomicOr(unsure, 1u);
}

// Marks (2) the eligible rows of at least a confidence.
void take_above(uint lane, uint count, double threshold, double tie) {
  double mine = kHuge;
  for (uint i = lane; i < count; i += 64)
    if (fits[i] != 0) mine = min(mine, rests[i]);
  const double bound = min(threshold, 1.0lf / (1.0lf + least(lane, mine)) - tie);
  for (uint i = lane; i < count; i += 64) {
    if (fits[i] == 0) continue;
    const double confidence = 1.0lf / (1.0lf + rests[i]);
    if (abs(confidence - bound) <= kClose) atomicOr(unsure, 1u);
    if (confidence > bound) fits[i] = 2;
  }
}

// Whether another pass may follow for the sequence.
bool decide(uint lane, uint s) {
  const uint first = uint(p.sequences.at[s].first), count = uint(p.sequences.at[s].count);
  if (lane == 0) {
    unsure = 0;
    committed = 0;
    first_mask = kNever;
    first_stop = p.sequences.at[s].first_stop;
  }
  barrier();
  load(lane, first, count);
  if (p.sequences.at[s].by_counts != 0) {
    take_best(lane, count, p.sequences.at[s].counts[p.state.pass]);
  } else {
    take_above(lane, count, p.sequences.at[s].threshold, p.sequences.at[s].tie);
  }
  barrier();
  for (uint i = lane; i < count; i += 64) {
    const uint token = p.candidates.at[first + i].token;
    const bool taken = fits[i] == 2;
    p.rows.at[first + i].chosen = taken ? int(token) : -1;
    if (taken) {
      atomicAdd(committed, 1u);
      if (stops_at(s, token)) atomicMin(first_stop, p.rows.at[first + i].position);
    } else if (p.rows.at[first + i].open != 0) {
      atomicMin(first_mask, p.rows.at[first + i].position);
    }
  }
  barrier();
  const bool goes_on = unsure == 0 && committed > 0 && first_mask != kNever && first_stop > first_mask;
  barrier();
  return goes_on;
}

void main() {
  const uint lane = gl_LocalInvocationID.x, pass = p.state.pass, rows = p.state.rows;
  bool goes_on = pass + 1 < p.state.passes;
  for (uint s = 0; goes_on && s < p.state.sequences; ++s) goes_on = decide(lane, s);
  memoryBarrierBuffer();
  barrier();
  for (uint row = lane; row < rows; row += 64) {
    const int chosen = goes_on ? p.rows.at[row].chosen : -1;
    p.kept.at[pass * p.pass_words + row] = chosen;
    p.rows.at[row].chosen = chosen;
    if (chosen >= 0) p.rows.at[row].open = 0;
  }
  if (lane == 0) p.state.ran = pass + 1;
  if (goes_on) {
    if (lane == 0) p.state.pass = pass + 1;
    return;
  }
  // What was submitted after this pass does nothing.
  if (lane == 0) p.state.halted = 1;
  if (lane < 2) p.counts.at[lane] = 0;
  for (uint i = lane; i < 3 * p.state.launches; i += 64) p.counts.at[16 + i] = 0;
}
