#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

// op::Linear and the logits of op::ScoreHead with packed codes, on devices without integer dot products: an invocation
// computes one output of kRows rows. The order of operations is that of int8_tile() in src/cpu/kernels/linear-inl.h:
// integer sums of a group of 16 or 32 products, then one fused multiply-add.

layout(local_size_x = 64) in;

#include "codes.glsl"

int dot(uint codes, uint values, int sum) {
  [[unroll]] for (int i = 0; i < 4; ++i)
    sum += int(codes >> (8 * i) & 255u) * bitfieldExtract(int(values), 8 * i, 8);
  return sum;
}

void main() {
  const uint output_index = gl_GlobalInvocationID.x;
  if (output_index >= p.n) return;
  const Tile tile = tile_of_group();
  if (tile.count == 0) return;
  const uint base = tile.base + output_index / 16 * p.panel_words, lane = output_index % 16, blocks = p.k / 32;
  float total[kRows];
  uint row_of[kRows];
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    total[r] = 0.0;
    row_of[r] = source_of(target_of(tile, r));
  }
  for (uint group = 0; group < blocks * kHalves; ++group) {
    const Raw raw = load_group(base, group, lane);
    const float scale = scale_of(raw, lane);
    const float minimum = kHasMinimum ? minimum_of(raw, lane) : 0.0;
    int sum[kRows];
    int dots[kRows];
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      const uint at = row_of[r] * (p.k / 16) + group * (kGroup / 16);
      sum[r] = p.sums.at[at] + (kGroup == 32 ? p.sums.at[at + 1] : 0);
      dots[r] = -kZero * sum[r];
    }
    [[unroll]] for (uint q = 0; q < kGroup / 4; ++q) {
      const uint codes = codes_of(raw, group % kHalves, q);
      [[unroll]] for (uint r = 0; r < kRows; ++r)
        dots[r] = dot(codes, p.values.at[row_of[r] * (p.k / 4) + group * (kGroup / 4) + q], dots[r]);
    }
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      const float d = p.scales.at[row_of[r] * blocks + group / kHalves];
      total[r] = fused(float(dots[r]), multiply(scale, d), total[r]);
      if (kHasMinimum) total[r] = fused(minimum, multiply(-d, float(sum[r])), total[r]);
    }
  }
  [[unroll]] for (uint r = 0; r < kRows; ++r)
    if (r < tile.count)
      p.result.at[target_of(tile, r) * p.n + output_index] = p.has_bias != 0 ? add(total[r], p.bias.at[output_index]) : total[r];
}
