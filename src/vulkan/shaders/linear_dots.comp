#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// linear_codes.comp by integer dot products. A workgroup computes kRows rows of a panel. Its invocations share the groups
// of k: first the sums of kParts groups, which have no order, then an invocation for each output adds them in theirs.

layout(local_size_x = 256) in;

#include "codes.glsl"

// OpSUDot of four signed and four unsigned bytes.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4452)
int dot_bytes(uint values, uint codes, spirv_literal int format);

const uint kParts = 16;
shared float terms[kParts * kRows * 16];
shared float factors[kParts * kRows * 16];
shared float minima[kHasMinimum ? kParts * 16 : 1];
shared float offsets[kHasMinimum ? kParts * kRows : 1];
shared bool small;  // whether a sum may meet subnormal numbers

uint source[kRows];

// The sums of one group, for all rows.
void multiply_group(Raw raw, uint group, uint place, uint lane) {
  Pieces values = Pieces(uvec2(p.values));
  uint codes[8];
  [[unroll]] for (uint q = 0; q < kGroup / 4; ++q) codes[q] = codes_of(raw, group % kHalves, q);
  const float scale = scale_of(raw, lane);
  if (kHasMinimum) minima[place * 16 + lane] = minimum_of(raw, lane);
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    const uint at = source[r] * (p.k / 16) + group * (kGroup / 16);
    int sum = p.sums.at[at];
    if (kGroup == 32) sum += p.sums.at[at + 1];
    int total = -kZero * sum;
    [[unroll]] for (uint i = 0; i < kGroup / 16; ++i) {
      const uvec4 four = values.at[at + i];
      [[unroll]] for (uint q = 0; q < 4; ++q) total += dot_bytes(four[q], codes[4 * i + q], 0);
    }
    const float d = p.scales.at[source[r] * (p.k / 32) + group / kHalves];
    const uint to = (place * kRows + r) * 16 + lane;
    if (meets_subnormals(d)) small = true;
    terms[to] = float(total);
    factors[to] = multiply(scale, d);
    if (kHasMinimum && lane == 0) offsets[place * kRows + r] = multiply(-d, float(sum));
  }
}

float add_group(uint place, uint i, uint lane, float total, bool guarded) {
  const uint at = (i * kRows + place) * 16 + lane;
  total = guarded ? fused(terms[at], factors[at], total) : fused_normal(terms[at], factors[at], total);
  if (!kHasMinimum) return total;
  const float minimum = minima[i * 16 + lane], offset = offsets[i * kRows + place];
  return guarded ? fused(minimum, offset, total) : fused_normal(minimum, offset, total);
}

void main() {
  const Tile tile = tile_of_group();
  if (tile.count == 0) return;
  const uint place = gl_LocalInvocationID.x / 16, lane = gl_LocalInvocationID.x % 16;
  const uint base = tile.base + gl_WorkGroupID.x * p.panel_words, groups = p.k / kGroup;
  [[unroll]] for (uint r = 0; r < kRows; ++r) source[r] = source_of(target_of(tile, r));
  float total = 0.0;
  if (gl_LocalInvocationID.x == 0) small = false;
  barrier();
  Raw raw = load_group(base, min(place, groups - 1), lane);
  for (uint first = 0; first < groups; first += kParts) {
    multiply_group(raw, min(first + place, groups - 1), place, lane);
    barrier();
    // The next groups' loads run while these are added.
    raw = load_group(base, min(first + kParts + place, groups - 1), lane);
    if (place < kRows) {
      const uint count = min(kParts, groups - first);
      if (small) {
        for (uint i = 0; i < count; ++i) total = add_group(place, i, lane, total, true);
      } else {
        [[unroll]] for (uint i = 0; i < kParts; ++i) {
          if (i >= count) break;
          total = add_group(place, i, lane, total, false);
        }
      }
    }
    barrier();
  }
  const uint output_index = gl_WorkGroupID.x * 16 + lane;
  if (place < tile.count && output_index < p.n)
    p.result.at[target_of(tile, place) * p.n + output_index] =
        p.has_bias != 0 ? add(total, p.bias.at[output_index]) : total;
}
