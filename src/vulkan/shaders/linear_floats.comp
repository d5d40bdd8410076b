#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// op::Linear and the logits of op::ScoreHead with F32, F16 and BF16 weights in panels (src/cpu/kernels/packed.h). An
// invocation computes one output of kRows rows, over k ascending. With BF16 weights, rows are rounded to BF16, and of
// each pair of k the odd one comes first (src/cpu/kernels/floats-inl.h).

layout(local_size_x = 64) in;
layout(constant_id = 2) const uint kType = 0;
const uint kF32 = 0, kF16 = 1, kBF16 = 2;

layout(push_constant) uniform Push {
  Words panels;
  Floats x;     // [rows][k]
  Floats bias;  // [n], if there is one
  Floats result;  // [rows][n]
  Ints count;   // [1], rows
  Floats route;  // of experts, as route_choice.comp writes it
  uint k;
  uint n;
  uint panel_words;
  uint has_bias;
  uint used;          // experts of a row
  uint expert_words;  // from a matrix to the next
  uint shared_rows;   // 1: all pairs of a row read the same row of x
  uint zero;
} p;

#include "exact.glsl"
#include "experts.glsl"

float total[kRows];
uint source[kRows];

void step_of(uint k, float weight) {
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    const float x = p.x.at[source[r] * p.k + k];
    total[r] = fused(kType == kBF16 ? uintBitsToFloat(bf16_bits(x)) : x, weight, total[r]);
  }
}

void main() {
  const uint output_index = gl_GlobalInvocationID.x;
  if (output_index >= p.n) return;
  const Tile tile = tile_of_group();
  if (tile.count == 0) return;
  const uint base = tile.base + output_index / 16 * p.panel_words, lane = output_index % 16;
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    total[r] = 0.0;
    source[r] = source_of(target_of(tile, r));
  }
  if (kType == kBF16) {
    for (uint k = 0; k < p.k; k += 2) {
      const uint pair = p.panels.at[base + k / 2 * 16 + lane];
      if (k + 1 < p.k) step_of(k + 1, uintBitsToFloat(pair & 0xffff0000u));
      step_of(k, uintBitsToFloat(pair << 16));
    }
  } else {
    for (uint k = 0; k < p.k; ++k) {
      const uint at = 16 * k + lane;
      const float weight =
          kType == kF32 ? uintBitsToFloat(p.panels.at[base + at]) : unpackHalf2x16(p.panels.at[base + at / 2])[at % 2];
      step_of(k, weight);
    }
  }
  [[unroll]] for (uint r = 0; r < kRows; ++r)
    if (r < tile.count)
      p.result.at[target_of(tile, r) * p.n + output_index] = p.has_bias != 0 ? add(total[r], p.bias.at[output_index]) : total[r];
}
