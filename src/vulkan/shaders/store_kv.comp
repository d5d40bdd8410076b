#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "cache.glsl"
#include "rows.glsl"

// op::StoreKv. An invocation stores a pair of K and one of V.

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  Floats key;  // [rows][kv_heads][head_dim]
  Floats value;
  PlanRows rows;
  uint kv_heads;
  uint head_dim;
  uint tile_words;   // of all layers
  uint key_words;    // where this layer's keys begin in a tile
  uint value_words;
  uint zero;
} p;

#include "exact.glsl"

// IEEE binary16, to nearest even (numerics/half.h).
uint half_of(float x) {
  const uint bits = floatBitsToUint(x), sign = bits >> 16 & 0x8000u;
  uint magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | (magnitude >> 13 & 0x3ffu);
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  // Adding 0.5 puts the unit of the last place at 2^-24: the sum is rounded as a subnormal number would be.
  if (magnitude < 0x38800000u) return sign | (floatBitsToUint(add(uintBitsToFloat(magnitude), 0.5)) - 0x3f000000u);
  magnitude += 0x00000fffu + (magnitude >> 13 & 1u);
  return sign | (magnitude - 0x38000000u) >> 13;
}

void store(Words cache, uint at, float a, float b) {
  if (kCacheType == kCacheF32) {
    cache.at[at] = floatBitsToUint(a);
    cache.at[at + 1] = floatBitsToUint(b);
  } else if (kCacheType == kCacheF16) {
    cache.at[at] = half_of(a) | half_of(b) << 16;
  } else {
    cache.at[at] = bf16_bits(a) >> 16 | bf16_bits(b);
  }
}

void main() {
  const uint pairs = p.head_dim / 2, i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
  if (i >= p.kv_heads * pairs) return;
  const uint head = i / pairs, pair = i % pairs, from = (row * p.kv_heads + head) * p.head_dim + 2 * pair;
  const uint position = uint(p.rows.at[row].position);
  const uint at = position / kTilePositions * p.tile_words +
                  words_of_pairs((head * kTilePositions + position % kTilePositions) * pairs + pair);
  Words cache = Words(p.rows.at[row].cache);
  store(cache, at + p.key_words, p.key.at[from], p.key.at[from + 1]);
  store(cache, at + p.value_words, p.value.at[from], p.value.at[from + 1]);
}
