#pragma once

#include "cpu/kernels/bf16-inl.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/math-inl.h"

// How rows of the KV cache become floats, and queries what fits them. row_operators-inl.h (encode, encode_key) is the
// way into the cache.

namespace dllm::cpu::DLLM_ISA {
namespace {

/// Converts one row of the cache to floats, zero-padded from head_dim to the next multiple of 16.
template <TensorType kType>
inline void widen_row(const std::byte* src, std::int64_t head_dim, float* dst) {
  if constexpr (kType == TensorType::kQ8_0) {
    const auto* block = reinterpret_cast<const std::uint8_t*>(src);
    for (std::int64_t i = 0; i < head_dim; i += 32, block += 34) {
      const F32 scale = set1(half_at(block));
      const auto* codes = reinterpret_cast<const std::int8_t*>(block + 2);
      store(dst + i, mul(scale, to_f32(load_int8(codes))));
      store(dst + i + 16, mul(scale, to_f32(load_int8(codes + 16))));
    }
  } else if constexpr (kType == TensorType::kQ4_0) {
    const auto* block = reinterpret_cast<const std::uint8_t*>(src);
    for (std::int64_t i = 0; i < head_dim; i += 32, block += 18) {
      const float step = half_at(block);
      const F32 scale = set1(step), base = set1(-8.f * step);  // c d - 8 d is exact, as (c - 8) d is
      const I32 codes = load_uint8(block + 2);
      store(dst + i, fma(scale, to_f32(bit_and(codes, set1(std::int32_t{15}))), base));
      store(dst + i + 16, fma(scale, to_f32(shift_right<4>(codes)), base));
    }
  } else if constexpr (kType == TensorType::kF32) {
    const auto* row = reinterpret_cast<const float*>(src);
    std::int64_t i = 0;
    for (; i + 16 <= head_dim; i += 16) store(dst + i, load(row + i));
    if (i < head_dim) store(dst + i, load_n(row + i, static_cast<int>(head_dim - i)));
  } else {
    const auto* row = reinterpret_cast<const std::uint16_t*>(src);
    const auto widen = [](const std::uint16_t* p) { return kType == TensorType::kF16 ? load_half(p) : load_bf16(p); };
    std::int64_t i = 0;
    for (; i + 16 <= head_dim; i += 16) store(dst + i, widen(row + i));
    if (i < head_dim) {
      std::uint16_t words[16] = {};
      __builtin_memcpy(words, row + i, static_cast<std::size_t>(head_dim - i) * 2);
      store(dst + i, widen(words));
    }
  }
}

/// Rows row(0), row(1), ... of the cache as floats.
template <TensorType kType, class Row>
void widen_rows(const AttentionArgs& args, std::int64_t stride, int count, float* dst, const Row& row) {
  for (int j = 0; j < count; ++j) widen_row<kType>(row(j), args.head_dim, dst + j * stride);
}

template <class Row>
inline void widen_rows(const AttentionArgs& args, std::int64_t stride, int count, float* dst, const Row& row) {
  switch (args.type) {
    case TensorType::kF16:
      return widen_rows<TensorType::kF16>(args, stride, count, dst, row);
    case TensorType::kBF16:
      return widen_rows<TensorType::kBF16>(args, stride, count, dst, row);
    case TensorType::kQ8_0:
      return widen_rows<TensorType::kQ8_0>(args, stride, count, dst, row);
    case TensorType::kQ4_0:
      return widen_rows<TensorType::kQ4_0>(args, stride, count, dst, row);
    default:
      return widen_rows<TensorType::kF32>(args, stride, count, dst, row);
  }
}

inline bool rotates_queries(const AttentionArgs& args) { return args.type == TensorType::kQ4_0 && !args.plain_keys; }

/// The factor of the queries. Rotated ones and the keys of encode_key() are 32 times too large together; the keys have
/// an eighth of it already.
inline float query_scale(const AttentionArgs& args) {
  return args.scale * 1.44269504f * (rotates_queries(args) ? 0.25f : 1.f);
}

/// Rotates laid out queries ([dim][16]) as encode_key() rotates the keys of a cache of this type.
inline void rotate_queries(const AttentionArgs& args, float* plane) {
  if (!rotates_queries(args)) return;
  for (std::int64_t dim = 0; dim < args.head_dim; dim += 32, plane += 32 * 16)
    for (int step = 1; step < 32; step *= 2)
      for (int i = 0; i < 32; ++i) {
        if ((i & step) != 0) continue;
        const F32 a = load(plane + i * 16), b = load(plane + (i + step) * 16);
        store(plane + i * 16, add(a, b));
        store(plane + (i + step) * 16, sub(a, b));
      }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
