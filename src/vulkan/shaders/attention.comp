#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "cache.glsl"
#include "rows.glsl"

// op::Attention, in the order of operations of src/cpu/kernels/attention-inl.h: an online softmax over tiles of 64
// positions aligned to position 0. A workgroup computes one head of one row. For scores and weights an invocation is a
// key of the tile, for outputs some dimensions.

layout(local_size_x = 64) in;
const uint kMostDims = 256;
const uint kDims = kMostDims / 64;  // of an invocation

layout(push_constant) uniform Push {
  Floats query;  // [rows][heads][head_dim]
  Floats result;
  PlanRows rows;
  Ints visible;  // visible positions of all sequences, ascending in each
  Ints tiles;    // where each tile begins in `visible`, then where the last one of a sequence ends
  uint heads;
  uint kv_heads;
  uint head_dim;
  uint tile_words;
  uint key_words;
  uint value_words;
  int window;  // 0: none
  float scale;  // times log2 e
  uint zero;
} p;

#include "exact.glsl"
#include "functions.glsl"

shared float query[kMostDims];
shared float weights[64];
shared uint places[64];  // of the keys of a tile, in words from their layer's begin
shared float parts[4];

vec2 pair_at(Words cache, uint at) {
  if (kCacheType == kCacheF32) return vec2(uintBitsToFloat(cache.at[at]), uintBitsToFloat(cache.at[at + 1]));
  if (kCacheType == kCacheF16) return unpackHalf2x16(cache.at[at]);
  return vec2(uintBitsToFloat(cache.at[at] << 16), uintBitsToFloat(cache.at[at] & 0xffff0000u));
}

float number_at(Words cache, uint at, uint dim) { return pair_at(cache, at + words_of_pairs(dim / 2))[dim % 2]; }

void main() {
  const uint lane = gl_LocalInvocationID.x, head = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
  const uint base = (row * p.heads + head) * p.head_dim, kv_head = head / (p.heads / p.kv_heads);
  const PlanRow plan = p.rows.at[row];
  Words cache = Words(plan.cache);
  for (uint d = lane; d < p.head_dim; d += 64) query[d] = multiply(p.query.at[base + d], p.scale);
  const int least = p.window > 0 ? max(0, plan.first - p.window + 1) : 0;
  float mixed[kDims];
  [[unroll]] for (uint i = 0; i < kDims; ++i) mixed[i] = 0.0;
  // A finite start keeps 2^(top - top) at 1 for rows that have seen nothing yet.
  float top = -1e30, sum = 0.0;
  for (int tile = plan.first_tile; tile < plan.first_tile + plan.tile_count; ++tile) {
    int begin = p.tiles.at[tile], end = p.tiles.at[tile + 1];
    while (begin < end && p.visible.at[begin] < least) ++begin;
    while (begin < end && p.visible.at[end - 1] >= plan.limit) --end;
    if (begin == end) continue;  // it changes nothing, bit for bit
    const int keys = end - begin;
    barrier();  // the queries are there, and the weights of the tile before were read
    if (int(lane) < keys) {
      const uint position = uint(p.visible.at[begin + int(lane)]);
      const uint place = position / kTilePositions * p.tile_words +
                         words_of_pairs((kv_head * kTilePositions + position % kTilePositions) * (p.head_dim / 2));
      places[lane] = place;
      float score = 0.0;
      for (uint d = 0; d < p.head_dim; d += 2) {
        const vec2 key = pair_at(cache, place + p.key_words + words_of_pairs(d / 2));
        score = fused(key.x, query[d], score);
        score = fused(key.y, query[d + 1], score);
      }
      weights[lane] = score;
    }
    barrier();
    float most = top;
    for (int j = 0; j < keys; ++j) most = weights[j] > most ? weights[j] : most;  // a NaN stays in its weight
    const float weight = int(lane) < keys ? weight_of(subtract(weights[lane], most)) : 0.0;
    barrier();
    weights[lane] = weight;
    barrier();
    if (lane < 4) {
      float part = 0.0;
      for (int j = int(lane); j < keys; j += 4) part = add(part, weights[j]);
      parts[lane] = part;
    }
    barrier();
    const float factor = weight_of(subtract(top, most));
    top = most;
    sum = fused(sum, factor, add(add(parts[0], parts[2]), add(parts[1], parts[3])));
    [[unroll]] for (uint i = 0; i < kDims; ++i) {
      const uint dim = lane + 64 * i;
      if (dim < p.head_dim) {
        float value = multiply(mixed[i], factor);
        for (int j = 0; j < keys; ++j)
          value = fused(number_at(cache, places[j] + p.value_words, dim), weights[j], value);
        mixed[i] = value;
      }
    }
  }
  const float inverse = sum == 0.0 ? 0.0 : divide(1.0, sum);  // nothing visible: zeros
  [[unroll]] for (uint i = 0; i < kDims; ++i)
    if (lane + 64 * i < p.head_dim) p.result.at[base + lane + 64 * i] = multiply(mixed[i], inverse);
}
