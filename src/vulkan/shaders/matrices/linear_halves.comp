#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "../types.glsl"

// Products of F16 and BF16 weights in panels (src/cpu/kernels/packed.h) with the rows of halves.comp, by cooperative
// matrices of F16 that add in F32: the arithmetic `f16` (docs/design/arithmetic.md). In which order a matrix unit adds, and
// how it rounds, is its own.
//
// Weights become F16 with one power of two for the matrix, which is exact for all that are at least 2^-29 of the largest;
// smaller ones are zeros. Every subgroup computes a panel for all rows of the tile. 64 k at a time pass through shared
// memory, while the next ones are loaded.
//
// Constants of the compilation (scripts/matrix_shaders.py), as drivers keep arrays in registers only if they know their
// sizes: DLLM_M, DLLM_N, DLLM_K of the operation; DLLM_ROWS of a tile; DLLM_SUBGROUP: invocations.

const uint kM = DLLM_M, kN = DLLM_N, kK = DLLM_K, kSubgroup = DLLM_SUBGROUP;
const uint kPanels = 4, kThreads = kPanels * kSubgroup;  // of a workgroup
layout(local_size_x = 4 * DLLM_SUBGROUP) in;
layout(constant_id = 2) const uint kType = 1;
const uint kF16 = 1;

layout(push_constant) uniform Push {
  Words panels;
  Words halves;  // [rows][half_words]
  Floats scales;  // [rows]
  Floats bias;   // [n], if there is one
  Floats result;  // [rows][n]
  Ints count;    // [1], rows
  Floats route;  // of experts, as route_choice.comp writes it
  uint k;
  uint n;
  uint panel_words;
  uint half_words;
  uint has_bias;
  uint used;          // experts of a row
  uint expert_words;  // from a matrix to the next
  uint shared_rows;   // 1: all pairs of a row read the same row of x
  int exponent;       // what weights' exponents lose as they become halves
  float scale;        // of the weights
} p;

layout(constant_id = 7) const bool kExperts = false;
const uint kRows = DLLM_ROWS;

const uint kChunk = 64, kPairs = kChunk / 2;  // words of a row
const uint kStride = kPairs / 4 + 1;          // pieces; the last one spreads rows over banks
const uint kRowTiles = kRows / kN, kOutputTiles = 16 / kM, kSteps = kChunk / kK;
const uint kLoads = kChunk / kSubgroup;  // of eight outputs of a pair of k
const uint kRowLoads = (kRows * kPairs / 4 + kThreads - 1) / kThreads;
const int kOne = 1 << 23;  // of an exponent

shared uvec4 codes[kPanels * 16 * kStride];
shared uvec4 values[kRows * kStride];
shared uint targets[kRows];  // rows of the result
shared uint before[kThreads];

#define Accumulator coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>
#define Codes coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA>
#define Values coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB>

uint half_of(uint bits) {
  const int magnitude = int(bits & 0x7fffffffu) - p.exponent * kOne;
  return magnitude < kOne ? 0 : uint(magnitude) >> 13 | (bits >> 16 & 0x8000u);
}

// A pair of k of output `i` of eight, from two pieces: of BF16 four outputs each, of F16 eight outputs of one k each.
uint pair_of(uvec4 low, uvec4 high, uint i) {
  if (kType == kF16) {
    const uint first = floatBitsToUint(unpackHalf2x16(low[i / 2])[i % 2]);
    return half_of(first) | half_of(floatBitsToUint(unpackHalf2x16(high[i / 2])[i % 2])) << 16;
  }
  const uint word = i < 4 ? low[i] : high[i - 4];
  return half_of(word << 16) | half_of(word & 0xffff0000u) << 16;
}

void multiply_tile(uint base, uint count) {
  const uint lane = gl_SubgroupInvocationID, warp = gl_SubgroupID, thread = warp * kSubgroup + lane;
  const uint panels = (p.n + 15) / 16, panel = gl_WorkGroupID.x * kPanels + warp;
  const uint from = (base + min(panel, panels - 1) * p.panel_words) / 4, pairs = (p.k + 1) / 2;
  Pieces weights = Pieces(uvec2(p.panels)), rows = Pieces(uvec2(p.halves));
  uvec4 low[kLoads], high[kLoads], row_raw[kRowLoads];
  uint row_at[kRowLoads];
  [[unroll]] for (uint i = 0; i < kRowLoads; ++i) {
    const uint target = targets[min(i * kThreads + thread, kRows * kPairs / 4 - 1) / (kPairs / 4)];
    row_at[i] = (kExperts && p.shared_rows != 0 ? target / p.used : target) * (p.half_words / 4);
  }
  Accumulator sums[kOutputTiles * kRowTiles];
  [[unroll]] for (uint i = 0; i < kOutputTiles * kRowTiles; ++i) sums[i] = Accumulator(0.0);

  // A turn stores the pairs that the one before has loaded, loads the next ones, and multiplies.
  for (uint first = 0; first < pairs + kPairs; first += kPairs) {
    if (first != 0) {
      barrier();
      [[unroll]] for (uint i = 0; i < kLoads; ++i) {
        const uint unit = i * kSubgroup + lane, pair = unit % kPairs, at = warp * 16 + unit / kPairs * 8;
        const bool inside = first - kPairs + pair < pairs;
        [[unroll]] for (uint o = 0; o < 8; ++o)
          codes[(at + o) * kStride + pair / 4][pair % 4] = inside ? pair_of(low[i], high[i], o) : 0;
      }
      [[unroll]] for (uint i = 0; i < kRowLoads; ++i) {
        const uint item = i * kThreads + thread;
        if (item < kRows * kPairs / 4) values[item / (kPairs / 4) * kStride + item % (kPairs / 4)] = row_raw[i];
      }
      barrier();
    }
    if (first < pairs) {
      [[unroll]] for (uint i = 0; i < kLoads; ++i) {
        const uint unit = i * kSubgroup + lane, pair = min(first + unit % kPairs, pairs - 1), part = unit / kPairs;
        if (kType == kF16) {
          low[i] = weights.at[from + 4 * pair + part];
          // An odd k has no second one: x has a zero there, and the panel ends.
          high[i] = 2 * pair + 1 < p.k ? weights.at[from + 4 * pair + 2 + part] : uvec4(0);
        } else {
          low[i] = weights.at[from + 4 * pair + 2 * part];
          high[i] = weights.at[from + 4 * pair + 2 * part + 1];
        }
      }
      [[unroll]] for (uint i = 0; i < kRowLoads; ++i) {
        const uint piece = first / 4 + (i * kThreads + thread) % (kPairs / 4);
        row_raw[i] = piece < p.half_words / 4 ? rows.at[row_at[i] + piece] : uvec4(0);
      }
    }
    if (first == 0) continue;
    [[unroll]] for (uint step = 0; step < kSteps; ++step) {
      Values b[kRowTiles];
      [[unroll]] for (uint t = 0; t < kRowTiles; ++t)
        coopMatLoad(b[t], values, t * kN * kStride + step * (kK / 8), kStride, gl_CooperativeMatrixLayoutColumnMajor);
      [[unroll]] for (uint m = 0; m < kOutputTiles; ++m) {
        Codes a;
        coopMatLoad(a, codes, (warp * 16 + m * kM) * kStride + step * (kK / 8), kStride,
                    gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint t = 0; t < kRowTiles; ++t)
          sums[m * kRowTiles + t] = coopMatMulAdd(a, b[t], sums[m * kRowTiles + t]);
      }
    }
  }

  // Through the place of the panel's weights, as only the driver knows where sums are.
  barrier();
  [[unroll]] for (uint m = 0; m < kOutputTiles; ++m)
    [[unroll]] for (uint t = 0; t < kRowTiles; ++t)
      coopMatStore(sums[m * kRowTiles + t], codes, warp * 16 * kStride + t * kN * 4 + m * kM / 4, 4,
                   gl_CooperativeMatrixLayoutColumnMajor);
  barrier();
  for (uint item = lane; item < 16 * kRows; item += kSubgroup) {
    const uint row = item / 16, output_index = panel * 16 + item % 16;
    if (row >= count || output_index >= p.n) continue;
    const uint target = targets[row], source = kExperts && p.shared_rows != 0 ? target / p.used : target;
    const float sum = uintBitsToFloat(codes[warp * 16 * kStride + item / 4][item % 4]);
    const float product = sum * p.scale * p.scales.at[source];
    p.result.at[target * p.n + output_index] = p.has_bias != 0 ? product + p.bias.at[output_index] : product;
  }
}

// All rows of x that have chosen the workgroup's expert: a list of their pairs, in order, one tile after the other.
void multiply_expert(uint expert, uint pairs) {
  const uint thread = gl_LocalInvocationIndex, share = (pairs + kThreads - 1) / kThreads;
  const uint begin = min(thread * share, pairs), end = min(begin + share, pairs);
  uint own = 0;
  for (uint i = begin; i < end; ++i)
    if (uint(p.route.at[i / p.used * 2 * p.used + i % p.used]) == expert) ++own;
  before[thread] = own;
  barrier();
  uint place = 0, all = 0;
  for (uint i = 0; i < kThreads; ++i) {
    if (i < thread) place += before[i];
    all += before[i];
  }
  for (uint tile = 0; tile < all; tile += kRows) {
    uint at = place;
    for (uint i = begin; i < end; ++i)
      if (uint(p.route.at[i / p.used * 2 * p.used + i % p.used]) == expert) {
        if (at >= tile && at < tile + kRows) targets[at - tile] = i;
        // Those that are missing repeat the last one.
        if (at == all - 1)
          for (uint r = all - tile; r < kRows; ++r) targets[r] = i;
        ++at;
      }
    barrier();
    multiply_tile(expert * p.expert_words, min(all - tile, kRows));
    barrier();
  }
}

void main() {
  const uint rows = uint(p.count.at[0]);
  if (kExperts) {
    multiply_expert(gl_WorkGroupID.y, rows * p.used);
    return;
  }
  const uint first = gl_WorkGroupID.y * kRows;
  if (first >= rows) return;
  const uint count = min(rows - first, kRows);
  if (gl_LocalInvocationIndex < kRows) targets[gl_LocalInvocationIndex] = first + min(gl_LocalInvocationIndex, count - 1);
  barrier();
  multiply_tile(0, count);
}
