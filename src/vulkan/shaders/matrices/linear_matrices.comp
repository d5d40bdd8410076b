#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "../types.glsl"

// linear_codes.comp by cooperative matrices of int8: the sums of 32 products are exact in any order, so one operation of
// a matrix unit makes those of a group, for kM outputs and kN rows. Every subgroup computes a panel for all rows of the
// tile. Groups of k pass through shared memory in chunks, while the next chunk's loads run.
//
// Tiles are constants of the compilation (scripts/matrix_shaders.py), because drivers keep arrays in registers only if
// they know their sizes and every index. DLLM_ROWS: of a tile; DLLM_SUBGROUPS: of a workgroup; DLLM_CHUNK: groups.

#ifndef kFloat64
// 16 x 8 x 32, by 32 invocations. An address is a multiple of a Piece.
#define Piece uvec4
const uint kPiece = 16;
const uint kSubgroup = 32, kM = 16, kN = 8, kK = 32;
// Elements of an invocation: so many rows of x, for each of so many outputs.
const uint kRowElements = 2, kOutputElements = 2;
#else
// 8 x 8 x 8, by 8 invocations: processors.
#define Piece uvec2
const uint kSubgroup = 8, kM = 8, kN = 8, kK = 8, kPiece = 8;
const uint kRowElements = 1, kOutputElements = 8;
#endif
const uint kThreads = DLLM_SUBGROUPS * kSubgroup, kChunk = DLLM_CHUNK;
layout(local_size_x = DLLM_SUBGROUPS * kSubgroup) in;

#define DLLM_FIXED_ROWS DLLM_ROWS
#include "../codes.glsl"

// Where an accumulator's elements are: four bits for each bit of (element, invocation), the invocation's below; 0 to 3 are
// bits of the row of x, 4 to 7 of the output. product.cpp asks the device.
layout(constant_id = 9) const uint kLayout = 0x07065421;

const uint kGroupPieces = 32 / kPiece;
const uint kStride = (32 * kChunk + 16) / kPiece;  // of a row of values; the rest spreads rows over banks
const uint kOutputs = DLLM_SUBGROUPS * 16;
const uint kRowTiles = kRows / kN, kOutputTiles = 16 / kM, kSteps = 32 / kK;
const uint kLoads = kChunk * 16 / kSubgroup;
const uint kRowLoads = (kRows * kChunk * 2 + kThreads - 1) / kThreads;
const uint kFactorLoads = (kRows * kChunk + kThreads - 1) / kThreads;
const uint kElements = kOutputElements * kRowElements;
const uint kLaneBits = kSubgroup == 8 ? 3 : 5, kRowBits = kRowElements == 1 ? 0 : 1;

shared Piece codes[kOutputs * kStride];
shared Piece values[kRows * kStride];
shared float scales[kOutputs * kChunk];
shared float minima[kHasMinimum ? kOutputs * kChunk : 1];
shared vec2 factors[kRows * kChunk];
shared float offsets[kHasMinimum ? kRows * kChunk : 1];
shared bool small;  // whether a sum may meet subnormal numbers

#define Accumulator coopmat<int, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>
#define Codes coopmat<int8_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA>
#define Values coopmat<int8_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB>

// A float whose low bits are a sum: kMagic's bits plus an integer below 2^22.
const int kMagicBits = 0x4b400000;
// Codes of eight bits are read as signed ones.
const bool kEightBits = kCodes == kByte || kCodes == kIq4;
const int kOffset = kEightBits ? kZero - 128 : kZero;

uint place_of_bit(uint index) { return 1u << (kLayout >> (4 * index) & 15u); }

// The place of an element: row of x below, output above.
uint place_of(uint bits, uint first, uint count) {
  uint place = 0;
  [[unroll]] for (uint i = 0; i < count; ++i) place += (bits >> i & 1u) * place_of_bit(first + i);
  return place;
}

void store_pieces(bool of_codes, uint at, uvec4 bytes) {
#ifndef kFloat64
  if (of_codes) codes[at] = bytes; else values[at] = bytes;
#else
  if (of_codes) codes[at] = bytes.xy; else values[at] = bytes.xy;
  if (of_codes) codes[at + 1] = bytes.zw; else values[at + 1] = bytes.zw;
#endif
}

void main() {
  const Tile tile = tile_of_group();
  if (tile.count == 0) return;
  const uint lane = gl_SubgroupInvocationID, warp = gl_SubgroupID, thread = warp * kSubgroup + lane;
  const uint panels = (p.n + 15) / 16, groups = p.k / 32;
  const uint panel = gl_WorkGroupID.x * DLLM_SUBGROUPS + warp;
  const uint base = tile.base + min(panel, panels - 1) * p.panel_words;
  const uint place = place_of(lane, 0, kLaneBits), row_place = place & 15u, output_place = warp * 16 + (place >> 4);
  Pieces rows = Pieces(uvec2(p.values));

  Raw raw[kLoads];
  uvec4 row_raw[kRowLoads];
  float scale_raw[kFactorLoads];
  int sum_raw[kFactorLoads];
  uint row_at[kRowLoads];
  uint factor_at[kFactorLoads];
  [[unroll]] for (uint i = 0; i < kRowLoads; ++i)
    row_at[i] = source_of(target_of(tile, min(i * kThreads + thread, kRows * kChunk * 2 - 1) / (2 * kChunk))) * (p.k / 16);
  [[unroll]] for (uint i = 0; i < kFactorLoads; ++i)
    factor_at[i] = source_of(target_of(tile, min(i * kThreads + thread, kRows * kChunk - 1) / kChunk)) * groups;

  float total[kOutputTiles * kRowTiles * kElements];
  [[unroll]] for (uint i = 0; i < kOutputTiles * kRowTiles * kElements; ++i) total[i] = 0.0;
  if (thread == 0) small = false;

  // A turn stores the groups that the one before has loaded, loads the next ones, and multiplies.
  for (uint first = 0; first < groups + kChunk; first += kChunk) {
    if (first != 0) {
      barrier();
      [[unroll]] for (uint i = 0; i < kLoads; ++i) {
        const uint item = i * kSubgroup + lane, group = item / 16, row = warp * 16 + item % 16;
        uint quads[8];
        [[unroll]] for (uint q = 0; q < 8; ++q) quads[q] = codes_of(raw[i], 0, q) ^ (kEightBits ? 0x80808080u : 0u);
        const uint at = row * kStride + group * kGroupPieces;
        store_pieces(true, at, uvec4(quads[0], quads[1], quads[2], quads[3]));
        store_pieces(true, at + kGroupPieces / 2, uvec4(quads[4], quads[5], quads[6], quads[7]));
        scales[group * kOutputs + row] = scale_of(raw[i], item % 16);
        if (kHasMinimum) minima[group * kOutputs + row] = minimum_of(raw[i], item % 16);
      }
      [[unroll]] for (uint i = 0; i < kRowLoads; ++i) {
        const uint item = i * kThreads + thread;
        if (item < kRows * kChunk * 2)
          store_pieces(false, item / (2 * kChunk) * kStride + item % (2 * kChunk) * (kGroupPieces / 2), row_raw[i]);
      }
      [[unroll]] for (uint i = 0; i < kFactorLoads; ++i) {
        const uint item = i * kThreads + thread, at = item % kChunk * kRows + item / kChunk;
        if (item < kRows * kChunk) {
          if (meets_subnormals(scale_raw[i])) small = true;
          factors[at] = vec2(scale_raw[i], add(kMagic, float(kOffset * sum_raw[i])));
          if (kHasMinimum) offsets[at] = multiply(-scale_raw[i], float(sum_raw[i]));
        }
      }
      barrier();
    }
    if (first < groups) {
      [[unroll]] for (uint i = 0; i < kLoads; ++i)
        raw[i] = load_group(base, min(first + (i * kSubgroup + lane) / 16, groups - 1), (i * kSubgroup + lane) % 16);
      [[unroll]] for (uint i = 0; i < kRowLoads; ++i)
        row_raw[i] = rows.at[row_at[i] + min(2 * first + (i * kThreads + thread) % (2 * kChunk), 2 * groups - 1)];
      [[unroll]] for (uint i = 0; i < kFactorLoads; ++i) {
        const uint at = factor_at[i] + min(first + (i * kThreads + thread) % kChunk, groups - 1);
        scale_raw[i] = p.scales.at[at];
        sum_raw[i] = p.sums.at[2 * at] + p.sums.at[2 * at + 1];
      }
    }
    if (first == 0) continue;

    const uint count = min(kChunk, groups + kChunk - first);
    for (uint group = 0; group < count; ++group) {
      Values b[kRowTiles * kSteps];
      vec2 factor[kRowTiles * kRowElements];
      float offset[kRowTiles * kRowElements];
      [[unroll]] for (uint t = 0; t < kRowTiles; ++t) {
        [[unroll]] for (uint step = 0; step < kSteps; ++step)
          coopMatLoad(b[t * kSteps + step], values, t * kN * kStride + group * kGroupPieces + step * (kK / kPiece), kStride,
                      gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint e = 0; e < kRowElements; ++e) {
          const uint at = group * kRows + t * kN + row_place + e * place_of_bit(kLaneBits);
          factor[t * kRowElements + e] = factors[at];
          offset[t * kRowElements + e] = kHasMinimum ? offsets[at] : 0.0;
        }
      }
      [[unroll]] for (uint m = 0; m < kOutputTiles; ++m) {
        Codes a[kSteps];
        [[unroll]] for (uint step = 0; step < kSteps; ++step)
          coopMatLoad(a[step], codes, (warp * 16 + m * kM) * kStride + group * kGroupPieces + step * (kK / kPiece), kStride,
                      gl_CooperativeMatrixLayoutRowMajor);
        float scale[kOutputElements];
        float minimum[kOutputElements];
        [[unroll]] for (uint e = 0; e < kOutputElements; ++e) {
          const uint at =
              group * kOutputs + output_place + m * kM +
              (place_of(e, kLaneBits + kRowBits, kOutputElements == 8 ? 3 : 1) >> 4);
          scale[e] = scales[at];
          minimum[e] = kHasMinimum ? minima[at] : 0.0;
        }
        [[unroll]] for (uint t = 0; t < kRowTiles; ++t) {
          Accumulator sums = Accumulator(kMagicBits);
          [[unroll]] for (uint step = 0; step < kSteps; ++step) sums = coopMatMulAdd(a[step], b[t * kSteps + step], sums);
          if (small) {
            [[unroll]] for (uint e = 0; e < kElements; ++e) {
              const uint i = e / kRowElements, row = t * kRowElements + e % kRowElements, at = (m * kRowTiles + t) * kElements + e;
              const float sum = subtract(intBitsToFloat(sums[e]), factor[row].y);
              total[at] = fused(sum, multiply(scale[i], factor[row].x), total[at]);
              if (kHasMinimum) total[at] = fused(minimum[i], offset[row], total[at]);
            }
          } else {
            [[unroll]] for (uint e = 0; e < kElements; ++e) {
              const uint i = e / kRowElements, row = t * kRowElements + e % kRowElements, at = (m * kRowTiles + t) * kElements + e;
              const float sum = subtract(intBitsToFloat(sums[e]), factor[row].y);
              total[at] = fused_normal(sum, multiply(scale[i], factor[row].x), total[at]);
              if (kHasMinimum) total[at] = fused_normal(minimum[i], offset[row], total[at]);
            }
          }
        }
      }
    }
  }
  [[unroll]] for (uint m = 0; m < kOutputTiles; ++m)
    [[unroll]] for (uint t = 0; t < kRowTiles; ++t)
      [[unroll]] for (uint e = 0; e < kElements; ++e) {
        const uint element = place_of(e, kLaneBits, kSubgroup == 8 ? 3 : 2);
        const uint row = t * kN + row_place + (element & 15u);
        const uint output_index = panel * 16 + m * kM + (place >> 4) + (element >> 4);
        const float sum = total[(m * kRowTiles + t) * kElements + e];
        if (row < tile.count && output_index < p.n)
          p.result.at[target_of(tile, row) * p.n + output_index] = p.has_bias != 0 ? add(sum, p.bias.at[output_index]) : sum;
      }
}
