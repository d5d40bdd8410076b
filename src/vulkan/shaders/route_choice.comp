#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "rows.glsl"

// The second half of op::Route: the chosen experts of a row and their weights, as src/graph/expert_choice.cpp says. A
// workgroup decides for a row; the choice itself is one invocation's, in the order of the definition.

layout(local_size_x = 64) in;
const uint kMostExperts = 1024;

layout(push_constant) uniform Push {
  Floats scores;  // [rows][experts]
  Floats keys;
  Floats expert_scale;  // [experts], if there is one
  Floats result;        // [rows][2 used]: experts ascending, then their weights
  PlanRows rows;
  Ints count;  // [1], rows
  uint experts;
  uint used;
  uint groups;
  uint groups_used;
  uint capacity;
  uint block;
  uint normalize;
  float scale;
  uint has_scale;
  uint zero;
} p;

#include "exact.glsl"
#include "double.glsl"

shared float own[kMostExperts];      // keys of the row
shared float largest[kMostExperts];  // of its block, or sums of its groups
shared uint allowed[kMostExperts];
shared uint chosen[kMostExperts];

float lowest() { return uintBitsToFloat(0xff800000u); }

// Sets `chosen` for the `count` largest of `size` numbers; the lower index wins, and what is no number loses.
void choose(bool of_row, bool limited, uint size, uint count) {
  for (uint i = 0; i < size; ++i) chosen[i] = 0;
  for (uint k = 0; k < count; ++k) {
    uint best = size;
    float most = 0.0;
    for (uint i = 0; i < size; ++i) {
      if ((limited && allowed[i] == 0) || chosen[i] != 0) continue;
      const float key = of_row ? own[i] : largest[i];
      if (best == size || key > most || (isnan(most) && !isnan(key))) {
        best = i;
        most = key;
      }
    }
    if (best < size) chosen[best] = 1;
  }
}

bool same_block(uint a, uint b) {
  return p.rows.at[a].cache == p.rows.at[b].cache && p.rows.at[a].kind == p.rows.at[b].kind &&
         uint(p.rows.at[a].position) / p.block == uint(p.rows.at[b].position) / p.block;
}

void limit_to_groups() {
  const uint size = p.experts / p.groups;
  for (uint g = 0; g < p.groups; ++g) {
    float first = lowest(), second = lowest();
    for (uint i = g * size; i < (g + 1) * size; ++i) {
      if (own[i] > first) {
        second = first;
        first = own[i];
      } else if (own[i] > second) {
        second = own[i];
      }
    }
    largest[g] = size > 1 ? add(first, second) : first;
  }
  choose(false, false, p.groups, p.groups_used);
  for (uint i = 0; i < p.experts; ++i) allowed[i] = chosen[i / size];
}

void main() {
  const uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.y;
  for (uint e = lane; e < p.experts; e += 64) {
    own[e] = p.keys.at[row * p.experts + e];
    allowed[e] = 1;
  }
  if (p.capacity > 0) {
    uint begin = row, end = row + 1;
    while (begin > 0 && same_block(begin - 1, row)) --begin;
    while (end < uint(p.count.at[0]) && same_block(end, row)) ++end;
    for (uint e = lane; e < p.experts; e += 64) {
      float most = lowest();
      for (uint r = begin; r < end; ++r) most = most < p.keys.at[r * p.experts + e] ? p.keys.at[r * p.experts + e] : most;
      largest[e] = most;
    }
  }
  barrier();
  if (lane != 0) return;
  if (p.capacity > 0) {
    choose(false, false, p.experts, p.capacity);
    for (uint e = 0; e < p.experts; ++e) allowed[e] = chosen[e];
  } else if (p.groups > 1) {
    limit_to_groups();
  }
  choose(true, true, p.experts, p.used);
  const uint to = row * 2 * p.used;
  uint found = 0;
  Double sum = double_of(0u, 0u);
  for (uint e = 0; e < p.experts; ++e) {
    if (chosen[e] == 0) continue;
    const float score = p.scores.at[row * p.experts + e];
    p.result.at[to + found] = float(e);
    p.result.at[to + p.used + found] = score;
    ++found;
    sum = sum64(sum, wide(score));
  }
  const Double divisor = p.normalize != 0 ? sum64(sum, double_of(0x0c924223u, 0x3bc79ca1u)) : wide(1.0);  // 1e-20
  const Double factor = quotient64(wide(p.scale), divisor);
  for (uint i = 0; i < found; ++i) {
    const float weight = narrow(product64(wide(p.result.at[to + p.used + i]), factor));
    p.result.at[to + p.used + i] =
        p.has_scale != 0 ? multiply(weight, p.expert_scale.at[uint(p.result.at[to + i])]) : weight;
  }
}
