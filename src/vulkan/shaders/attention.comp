#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "cache.glsl"
#include "rows.glsl"

// op::Attention, in the order of operations of src/cpu/kernels/attention-inl.h: an online softmax over tiles of 64
// positions aligned to position 0. A workgroup computes one head of one row. For scores and weights an invocation is a
// key of the tile, for outputs some dimensions.

layout(local_size_x = 64) in;
layout(constant_id = 4) const uint kDims = 4;  // of an invocation
const uint kMostDims = kDims * 64;

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

// The scale of a block in a row at `at`.
float step_at(Words cache, uint at, uint block) {
  return unpackHalf2x16(cache.at[at + words_of_codes(p.head_dim) + block / 2])[block % 2];
}

// Codes times their scale, as widen_row() of src/cpu/kernels/cached_rows-inl.h: (c - 8) d is c d - 8 d, each exact.
float of_code(uint word, uint dim, float scale) {
  if (kCacheType == kCacheQ8) return multiply(scale, float(bitfieldExtract(int(word), int(8 * (dim % 4)), 8)));
  return add(multiply(scale, float(word >> (4 * (dim % 8)) & 15u)), multiply(-8.0, scale));
}

float number_at(Words cache, uint at, uint dim) {
  if (kHasCodes) return of_code(cache.at[at + words_of_codes(dim)], dim, step_at(cache, at, dim / 32));
  return pair_at(cache, at + words_of_row(dim / 2 * 2))[dim % 2];
}

float score_of(Words cache, uint at) {
  float score = 0.0;
  if (kHasCodes) {
    for (uint d = 0; d < p.head_dim; d += 32) {
      const float scale = step_at(cache, at, d / 32);
      for (uint i = 0; i < 32; ++i) score = fused(of_code(cache.at[at + words_of_codes(d + i)], i, scale), query[d + i], score);
    }
    return score;
  }
  for (uint d = 0; d < p.head_dim; d += 2) {
    const vec2 key = pair_at(cache, at + words_of_row(d));
    score = fused(key.x, query[d], score);
    score = fused(key.y, query[d + 1], score);
  }
  return score;
}

// As store_kv.comp rotates the blocks of keys.
void rotate_query(uint lane) {
  for (uint width = 1; width < 32; width *= 2) {
    barrier();
    for (uint d = lane; d < p.head_dim; d += 64) {
      if ((d & width) != 0) continue;
      const float a = query[d], b = query[d + width];
      query[d] = add(a, b);
      query[d + width] = subtract(a, b);
    }
  }
}

void main() {
  const uint lane = gl_LocalInvocationID.x, head = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
  const uint base = (row * p.heads + head) * p.head_dim, kv_head = head / (p.heads / p.kv_heads);
  const PlanRow plan = p.rows.at[row];
  Words cache = Words(plan.cache);
  for (uint d = lane; d < p.head_dim; d += 64) query[d] = multiply(p.query.at[base + d], p.scale);
  if (kRotatesKeys) rotate_query(lane);
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
                         (kv_head * kTilePositions + position % kTilePositions) * words_of_row(p.head_dim);
      places[lane] = place;
      weights[lane] = score_of(cache, place + p.key_words);
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
