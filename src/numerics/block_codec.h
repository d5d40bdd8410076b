#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "numerics/tensor_type.h"

/// What the block formats share. Each format's file defines a `Block` with GGML's memory layout and the conversion of
/// one block; make_codec() turns these into the row functions of a Codec.
namespace dllm {

// Blocks are copied to and from files as they are.
static_assert(std::endian::native == std::endian::little, "GGUF data is little endian");

template <class Block, std::int64_t elems, void (*decode)(const Block&, float*)>
void decode_blocks(const std::byte* src, float* dst, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += elems, src += sizeof(Block)) {
    Block block;  // a copy, because src need not be aligned
    std::memcpy(&block, src, sizeof(Block));
    decode(block, dst + i);
  }
}

template <class Block, std::int64_t elems, Block (*encode)(const float*)>
void encode_blocks(const float* src, std::byte* dst, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += elems, dst += sizeof(Block)) {
    const Block block = encode(src + i);
    std::memcpy(dst, &block, sizeof(Block));
  }
}

template <class Block, std::int64_t elems, void (*decode)(const Block&, float*), Block (*encode)(const float*)>
constexpr Codec make_codec(TensorType type, std::string_view name) {
  static_assert(std::has_unique_object_representations_v<Block>, "padding would be written to files");
  return {type, name, elems, sizeof(Block), decode_blocks<Block, elems, decode>, encode_blocks<Block, elems, encode>};
}

/// The same with an encoder that weights errors. `weigh` turns a row's importance into weights of one block's errors:
/// weigh(x of the block, importance of the block, mean square of the row, out).
template <class Block, std::int64_t elems, Block (*encode)(const float* x, const float* weights),
          void (*weigh)(const float*, const float*, float, float*)>
void encode_weighted(const float* src, const float* importance, std::byte* dst, std::int64_t count) {
  float squares = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) squares += src[i] * src[i];
  const float mean_square = count > 0 ? squares / static_cast<float>(count) : 0.0f;
  for (std::int64_t i = 0; i < count; i += elems, dst += sizeof(Block)) {
    float weights[elems];
    weigh(src + i, importance + i, mean_square, weights);
    const Block block = encode(src + i, weights);
    std::memcpy(dst, &block, sizeof(Block));
  }
}

/// importance * sqrt(s + x^2) with the row's mean square s: GGML's rule for blocks of 32.
template <int elems>
void weigh_by_row(const float* x, const float* importance, float mean_square, float* out) {
  for (int i = 0; i < elems; ++i) out[i] = importance[i] * std::sqrt(mean_square + x[i] * x[i]);
}
/// The same with `factor` times the block's own mean square: GGML's rule for its other formats.
template <int elems, int factor>
void weigh_by_block(const float* x, const float* importance, float, float* out) {
  float squares = 0.0f;
  for (int i = 0; i < elems; ++i) squares += x[i] * x[i];
  weigh_by_row<elems>(x, importance, squares * (static_cast<float>(factor) / float{elems}), out);
}

template <class Block, std::int64_t elems, Block (*encode)(const float* x, const float* weights),
          void (*weigh)(const float*, const float*, float, float*)>
constexpr Codec with_weights(Codec codec) {
  codec.quantize_weighted = encode_weighted<Block, elems, encode, weigh>;
  return codec;
}

/// Truncates to an integer in [0, top]. NaN gives 0 where a bare cast would be undefined: it arises from 0 * inf in
/// blocks whose scale is subnormal, and from NaN weights.
inline std::uint8_t truncate_level(float value, int top) {
  const float limit = static_cast<float>(top);
  return static_cast<std::uint8_t>(value > 0.0f ? (value < limit ? value : limit) : 0.0f);
}

/// 1 / d, or 0 for a block of zeros.
inline float reciprocal_or_zero(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

/// The element of largest magnitude with its sign; the first one on a tie.
inline float signed_max(const float* x, int count) {
  float magnitude = 0.0f, value = 0.0f;
  for (int i = 0; i < count; ++i) {
    const float candidate = std::fabs(x[i]);
    if (candidate > magnitude) {
      magnitude = candidate;
      value = x[i];
    }
  }
  return value;
}

/// Packs 32 levels of five bits as Q5_0 and Q5_1 store them: byte j of qs holds the low nibbles of elements j (low) and
/// j + 16 (high), bit i of qh the fifth bit of element i. `level(i)` gives the level of element i.
template <class Level>
void pack_five_bits(const Level& level, std::uint8_t (&qh)[4], std::uint8_t (&qs)[16]) {
  std::uint32_t fifth = 0;
  for (int j = 0; j < 16; ++j) {
    const auto low = static_cast<unsigned>(level(j)), high = static_cast<unsigned>(level(j + 16));
    qs[j] = static_cast<std::uint8_t>((low & 15u) | (high & 15u) << 4);
    fifth |= (low >> 4) << j | (high >> 4) << (j + 16);
  }
  std::memcpy(qh, &fifth, sizeof(fifth));
}

/// Twice the values of E2M1's codes, which are integers (mx_fixed()): GGML stores half the scale beside them.
inline constexpr float kE2m1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// The code whose doubled value times d, half the scale, is nearest. Ties go to the smaller magnitude, and what rounds
/// to zero gives +0, as in GGML's linear search.
inline unsigned nearest_e2m1(float x, float d) {
  constexpr float kMidpoints[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};
  const float magnitude = std::fabs(x);
  unsigned code = 0;
  for (const float midpoint : kMidpoints) code += magnitude > midpoint * d ? 1u : 0u;
  return code != 0 && x < 0.0f ? code | 8u : code;
}

struct Extent {
  float min;
  float max;
};

inline Extent extent(const float* x, int count) {
  Extent result{x[0], x[0]};
  for (int i = 1; i < count; ++i) {
    if (x[i] < result.min) result.min = x[i];
    if (x[i] > result.max) result.max = x[i];
  }
  return result;
}

}  // namespace dllm
