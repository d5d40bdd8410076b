#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "../types.glsl"

// linear_matrices.comp for devices whose matrices of 16 x 8 x 32 have a known place for every element (product.cpp asks):
// invocation 4 g + t has of codes the outputs g and g + 8, of values the row g, both for k 4 t to 4 t + 3 and 16 more, and
// of sums the outputs g and g + 8 of the rows 2 t and 2 t + 1. Panels lie in memory in just this order. So weights go from
// memory to the matrix unit without a detour.

const uint kSubgroup = 32, kThreads = DLLM_SUBGROUPS * kSubgroup, kChunk = DLLM_CHUNK;
layout(local_size_x = DLLM_SUBGROUPS * kSubgroup) in;

#define DLLM_FIXED_ROWS DLLM_ROWS
#include "../codes.glsl"

const uint kTiles = kRows / 8;
const uint kRowLoads = (kRows * kChunk * 8 + kThreads - 1) / kThreads;  // words
const uint kFactorLoads = (kRows * kChunk + kThreads - 1) / kThreads;

// By group and tile: of an invocation, k 4 t and 16 more.
shared uvec2 values[kChunk * kTiles * 32];
shared vec2 factors[kChunk * kRows];
shared float offsets[kHasMinimum ? kRows * kChunk : 1];

#define Accumulator coopmat<int, gl_ScopeSubgroup, 16, 8, gl_MatrixUseAccumulator>
#define Codes coopmat<int8_t, gl_ScopeSubgroup, 16, 32, gl_MatrixUseA>
#define Values coopmat<int8_t, gl_ScopeSubgroup, 32, 8, gl_MatrixUseB>

// A float whose low bits are a sum: kMagic's bits plus an integer below 2^22.
const int kMagicBits = 0x4b400000;
// Codes of eight bits are read as signed ones.
const bool kEightBits = kCodes == kByte || kCodes == kIq4;
const int kOffset = kEightBits ? kZero - 128 : kZero;

// What an invocation needs of a group of one output.
struct Quads {
  uint low;   // quad t, and the one 16 further if they share words
  uint more;  // quad t + 4
  uint high;
  uint scale;
  uint super;
  uint minimum;
  uint super_minimum;
};

Quads load_quads(uint base, uint group, uint lane, uint t) {
  Quads raw;
  const uint at = group * 16 + lane;
  if (kCodes == kByte) {
    raw.low = p.panels.at[base + group * 128 + 16 * t + lane];
    raw.more = p.panels.at[base + group * 128 + 64 + 16 * t + lane];
  } else {
    raw.low = p.panels.at[base + group * 64 + 16 * t + lane];
  }
  if (kCodes == kNibble5) raw.high = p.panels.at[base + p.high / 4 + at];
  const uint super = group / 8 * 16 + lane;
  raw.scale = kScales == kHalf ? half_word(base, p.scale, at) : byte_word(base, p.scale, at);
  if (kScales == kSuper) raw.super = half_word(base, p.super, super);
  if (kHasMinimum) {
    if (kScales == kHalf) raw.minimum = half_word(base, p.minimum, at);
    if (kScales == kSuper) raw.minimum = byte_word(base, p.minimum, at);
    if (kScales == kSuper) raw.super_minimum = half_word(base, p.super_minimum, super);
  }
  return raw;
}

Raw raw_of(Quads quads) {
  Raw raw;
  raw.low[0] = quads.low;
  raw.high = quads.high;
  raw.scale = quads.scale;
  raw.super = quads.super;
  raw.minimum = quads.minimum;
  raw.super_minimum = quads.super_minimum;
  return raw;
}

// Quad t (second: t + 4) as signed bytes.
uint bytes_of(Quads raw, uint t, bool second) {
  if (kCodes == kByte) return (second ? raw.more : raw.low) ^ 0x80808080u;
  const uint low = (second ? raw.low >> 4 : raw.low) & 0x0f0f0f0fu;
  if (kCodes == kNibble5) return low | (raw.high >> (second ? t + 4 : t) & 0x01010101u) << 4;
  if (kCodes == kE2M1 || kCodes == kIq4) {
    uint values = 0;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      const uint code = low >> (8 * i) & 255u;
      values |= (kCodes == kE2M1 ? value_of_e2m1(code) : value_of_iq4(code)) << (8 * i);
    }
    return values ^ (kEightBits ? 0x80808080u : 0u);
  }
  return low;
}

void main() {
  const Tile tile = tile_of_group();
  if (tile.count == 0) return;
  const uint lane = gl_SubgroupInvocationID, warp = gl_SubgroupID, thread = warp * kSubgroup + lane;
  const uint g = lane / 4, t = lane % 4;
  const uint panels = (p.n + 15) / 16, groups = p.k / 32;
  const uint panel = gl_WorkGroupID.x * DLLM_SUBGROUPS + warp;
  const uint base = tile.base + min(panel, panels - 1) * p.panel_words;

  Quads raw[2 * kChunk];
  uint row_raw[kRowLoads];
  float scale_raw[kFactorLoads];
  int sum_raw[kFactorLoads];
  uint row_at[kRowLoads];
  uint factor_at[kFactorLoads];
  // Items are [row][group][word], so that loads are of neighbours.
  [[unroll]] for (uint i = 0; i < kRowLoads; ++i)
    row_at[i] = source_of(target_of(tile, min(i * kThreads + thread, kRows * kChunk * 8 - 1) / (8 * kChunk))) * (p.k / 4);
  [[unroll]] for (uint i = 0; i < kFactorLoads; ++i)
    factor_at[i] = source_of(target_of(tile, min(i * kThreads + thread, kRows * kChunk - 1) / kChunk)) * groups;

  float total[kTiles * 4];
  [[unroll]] for (uint i = 0; i < kTiles * 4; ++i) total[i] = 0.0;

  [[unroll]] for (uint i = 0; i < 2 * kChunk; ++i)
    raw[i] = load_quads(base, min(i / 2, groups - 1), g + 8 * (i % 2), t);
  [[unroll]] for (uint i = 0; i < kRowLoads; ++i)
    row_raw[i] = p.values.at[row_at[i] + min((i * kThreads + thread) % (8 * kChunk), 8 * groups - 1)];
  [[unroll]] for (uint i = 0; i < kFactorLoads; ++i) {
    const uint at = factor_at[i] + min((i * kThreads + thread) % kChunk, groups - 1);
    scale_raw[i] = p.scales.at[at];
    sum_raw[i] = p.sums.at[2 * at] + p.sums.at[2 * at + 1];
  }
  for (uint first = 0; first < groups; first += kChunk) {
    barrier();
    [[unroll]] for (uint i = 0; i < kRowLoads; ++i) {
      const uint item = i * kThreads + thread, row = item / (8 * kChunk), group = item / 8 % kChunk, quad = item % 8;
      if (item < kRows * kChunk * 8)
        values[(group * kTiles + row / 8) * 32 + row % 8 * 4 + quad % 4][quad / 4] = row_raw[i];
    }
    [[unroll]] for (uint i = 0; i < kFactorLoads; ++i) {
      const uint item = i * kThreads + thread, at = item % kChunk * kRows + item / kChunk;
      if (item < kRows * kChunk) {
        factors[at] = vec2(scale_raw[i], add(kMagic, float(kOffset * sum_raw[i])));
        if (kHasMinimum) offsets[at] = multiply(-scale_raw[i], float(sum_raw[i]));
      }
    }
    barrier();
    const uint next = first + kChunk;
    [[unroll]] for (uint i = 0; i < kRowLoads; ++i)
      row_raw[i] = p.values.at[row_at[i] + min(8 * next + (i * kThreads + thread) % (8 * kChunk), 8 * groups - 1)];
    [[unroll]] for (uint i = 0; i < kFactorLoads; ++i) {
      const uint at = factor_at[i] + min(next + (i * kThreads + thread) % kChunk, groups - 1);
      scale_raw[i] = p.scales.at[at];
      sum_raw[i] = p.sums.at[2 * at] + p.sums.at[2 * at + 1];
    }
    [[unroll]] for (uint group = 0; group < kChunk; ++group) {
      Codes a;
      float scale[2];
      float minimum[2];
      [[unroll]] for (uint m = 0; m < 2; ++m) {
        const Quads quads = raw[2 * group + m];
        [[unroll]] for (uint h = 0; h < 2; ++h) {
          const i8vec4 four = unpack8(int(bytes_of(quads, t, h == 1)));
          [[unroll]] for (uint i = 0; i < 4; ++i) a[8 * m + 4 * h + i] = four[i];
        }
        scale[m] = scale_of(raw_of(quads), g + 8 * m);
        minimum[m] = kHasMinimum ? minimum_of(raw_of(quads), g + 8 * m) : 0.0;
        // The chunk after this one; past the end, any group.
        raw[2 * group + m] = load_quads(base, min(next + group, groups - 1), g + 8 * m, t);
      }
      if (first + group < groups) {
        [[unroll]] for (uint n = 0; n < kTiles; ++n) {
          const uvec2 words = values[(group * kTiles + n) * 32 + lane];
          Values b;
          [[unroll]] for (uint h = 0; h < 2; ++h) {
            const i8vec4 four = unpack8(int(words[h]));
            [[unroll]] for (uint i = 0; i < 4; ++i) b[4 * h + i] = four[i];
          }
          Accumulator sums = coopMatMulAdd(a, b, Accumulator(kMagicBits));
          [[unroll]] for (uint j = 0; j < 2; ++j) {
            const uint row = group * kRows + n * 8 + 2 * t + j;
            const vec2 factor = factors[row];
            [[unroll]] for (uint m = 0; m < 2; ++m) {
              const uint at = n * 4 + 2 * m + j;
              total[at] =
                  fused_normal(subtract(intBitsToFloat(sums[2 * m + j]), factor.y), multiply(scale[m], factor.x), total[at]);
              if (kHasMinimum) total[at] = fused_normal(minimum[m], offsets[row], total[at]);
            }
          }
        }
      }
    }
  }
  [[unroll]] for (uint n = 0; n < kTiles; ++n)
    [[unroll]] for (uint e = 0; e < 4; ++e) {
      const uint row = n * 8 + 2 * t + e % 2, output_index = panel * 16 + g + e / 2 * 8;
      if (row < tile.count && output_index < p.n)
        p.result.at[target_of(tile, row) * p.n + output_index] =
            p.has_bias != 0 ? add(total[n * 4 + e], p.bias.at[output_index]) : total[n * 4 + e];
    }
}
