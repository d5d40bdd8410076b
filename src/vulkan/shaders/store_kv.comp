#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "cache.glsl"
#include "rows.glsl"

// op::StoreKv. An invocation stores a pair of K and one of V, or two blocks of 32 of either, which share a word of scales.
// A row may be stored in several caches (branches of one), or in none (shadow rows).

layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
  Floats key;  // [rows][kv_heads][head_dim]
  Floats value;
  StoredRows stores;
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

// The first word of a head of a stored row, without the layer.
uint place_of(uint head, StoredRow stored) {
  const uint position = uint(stored.position);
  return position / kTilePositions * p.tile_words +
         (head * kTilePositions + position % kTilePositions) * words_of_row(p.head_dim);
}

// The codes of a block, and its scale: to_q8_0() and to_q4_0() of src/cpu/kernels/row_operators-inl.h. Maxima prefer what
// is a number, but a scale that is none shows that there was one.
uint encode(Words cache, uint at, float x[32]) {
  uint peak = 0;
  float most = 0.0;
  [[unroll]] for (uint j = 0; j < 32; ++j) {
    peak = max(peak, floatBitsToUint(x[j]) & 0x7fffffffu);
    most = x[j] > most ? x[j] : most;
  }
  const float largest = uintBitsToFloat(peak);
  const bool nothing = largest < power_of_two(-120);
  const bool eight = kCacheType == kCacheQ8;
  const float step = eight ? divide(largest, 127.0) : multiply(largest, most == largest ? -0.125 : 0.125);
  const float inverse = nothing ? 0.0 : eight ? divide(127.0, largest) : divide(1.0, step);
  const float low = eight ? -127.0 : -8.0, high = eight ? 127.0 : 7.0;
  const uint codes = eight ? 4 : 8;  // of a word
  [[unroll]] for (uint word = 0; word < 8; ++word) {
    if (word * codes >= 32) break;
    uint packed = 0;
    [[unroll]] for (uint j = 0; j < 8; ++j) {
      if (j >= codes) break;
      const float scaled = multiply(x[word * codes + j], inverse);
      const float above = scaled > low ? scaled : low, inside = above < high ? above : high;
      const int code = floatBitsToInt(add(inside, kMagic)) - floatBitsToInt(kMagic);
      packed |= eight ? (uint(code) & 255u) << (8 * j) : uint(code + 8) << (4 * j);
    }
    cache.at[at + word] = packed;
  }
  return half_of(step);
}

void load_block(Floats from, uint at, bool rotates, out float x[32]) {
  for (uint j = 0; j < 32; ++j) x[j] = rotates ? multiply(from.at[at + j], 0.125) : from.at[at + j];
  if (!rotates) return;
  for (uint width = 1; width < 32; width *= 2)
    for (uint j = 0; j < 32; ++j) {
      if ((j & width) != 0) continue;
      const float a = x[j], b = x[j + width];
      x[j] = add(a, b);
      x[j + width] = subtract(a, b);
    }
}

void store_blocks() {
  const uint twos = (p.head_dim / 32 + 1) / 2, i = gl_GlobalInvocationID.x;
  if (i >= 2 * p.kv_heads * twos) return;
  const StoredRow stored = p.stores.at[gl_WorkGroupID.y];
  const bool of_value = i >= p.kv_heads * twos;
  const uint index = i % (p.kv_heads * twos), head = index / twos, two = index % twos, row = uint(stored.row);
  Words cache = Words(stored.cache);
  Floats from = p.key;
  if (of_value) from = p.value;
  const uint at = place_of(head, stored) + (of_value ? p.value_words : p.key_words);
  uint scales = 0;
  for (uint half_index = 0; half_index < 2; ++half_index) {
    const uint block = 2 * two + half_index;
    if (32 * block >= p.head_dim) break;
    float x[32];
    load_block(from, (row * p.kv_heads + head) * p.head_dim + 32 * block, kRotatesKeys && !of_value, x);
    scales |= encode(cache, at + words_of_codes(32 * block), x) << (16 * half_index);
  }
  cache.at[at + words_of_codes(p.head_dim) + two] = scales;
}

void main() {
  if (kHasCodes) {
    store_blocks();
    return;
  }
  const uint pairs = p.head_dim / 2, i = gl_GlobalInvocationID.x;
  if (i >= p.kv_heads * pairs) return;
  const StoredRow stored = p.stores.at[gl_WorkGroupID.y];
  const uint head = i / pairs, pair = i % pairs;
  const uint from = (uint(stored.row) * p.kv_heads + head) * p.head_dim + 2 * pair;
  const uint at = place_of(head, stored) + words_of_row(2 * pair);
  Words cache = Words(stored.cache);
  store(cache, at + p.key_words, p.key.at[from], p.key.at[from + 1]);
  store(cache, at + p.value_words, p.value.at[from], p.value.at[from + 1]);
}
