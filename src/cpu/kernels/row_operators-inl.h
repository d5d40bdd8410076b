#pragma once

#include "cpu/kernels/bf16-inl.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/math-inl.h"

// Kernels that process one row at a time.

namespace dllm::cpu::DLLM_ISA {
namespace {

void rms_norm(const float* x, const float* gain, float eps, std::int64_t n, float* out) {
  F32 squares = set1(0.f);
  for (std::int64_t i = 0; i < n; i += 16) {
    const F32 v = load_n(x + i, count_of(i, n));
    squares = fma(v, v, squares);
  }
  const float mean = reduce_add(squares) / static_cast<float>(n);
  const F32 inverse = set1(1.f / __builtin_sqrtf(mean + eps));
  for (std::int64_t i = 0; i < n; i += 16) {
    const int count = count_of(i, n);
    // Normalise first, then the gain: the order of LLaDA's reference code.
    store_n(out + i, mul(mul(load_n(x + i, count), inverse), load_n(gain + i, count)), count);
  }
}

// Products and sums are rounded separately, as PyTorch's q * cos + rotate_half(q) * sin does. Without contraction a
// plain loop gives the same bits in every set.
void rope(const RopeArgs& args, const float* x, float* out) {
  const std::int64_t half = args.dims / 2;
  const std::int64_t step = args.interleaved ? 2 : 1, distance = args.interleaved ? 1 : half;
  for (std::int64_t h = 0; h < args.heads; ++h, x += args.head_dim, out += args.head_dim) {
    for (std::int64_t j = 0; j < half; ++j) {
      const float a = x[j * step], b = x[j * step + distance];
      out[j * step] = a * args.cos[j] - b * args.sin[j];
      out[j * step + distance] = b * args.cos[j] + a * args.sin[j];
    }
    if (out != x)
      for (std::int64_t j = args.dims; j < args.head_dim; ++j) out[j] = x[j];
  }
}

/// The sums and differences of a run of 16 values at distances 1, 2, 4 and 8, which are within a register: loops of
/// fixed length, for the compiler.
inline void hadamard_16(float* x) {
  float y[16];
  for (int i = 0; i < 8; ++i) y[2 * i] = x[2 * i] + x[2 * i + 1], y[2 * i + 1] = x[2 * i] - x[2 * i + 1];
  for (int i = 0; i < 16; i += 4)
    for (int j = i; j < i + 2; ++j) x[j] = y[j] + y[j + 2], x[j + 2] = y[j] - y[j + 2];
  for (int i = 0; i < 16; i += 8)
    for (int j = i; j < i + 4; ++j) y[j] = x[j] + x[j + 4], y[j + 4] = x[j] - x[j + 4];
  for (int j = 0; j < 8; ++j) x[j] = y[j] + y[j + 8], x[j + 8] = y[j] - y[j + 8];
}

void hadamard_core(const HadamardArgs& args, float* x) {
  float in[64];
  __builtin_memcpy(in, x, static_cast<std::size_t>(args.core) * sizeof(float));
  for (std::int64_t c = 0; c < args.core; c += 16) {
    const int count = count_of(c, args.core);
    F32 sum = set1(0.f);
    // A product with 1 or -1 is exact, so that fused or not does not matter.
    for (std::int64_t r = 0; r < args.core; ++r)
      sum = fma(set1(in[r]), load_n(args.signs + r * args.core + c, count), sum);
    store_n(x + c, sum, count);
  }
}

void hadamard(const HadamardArgs& args, const float* x, std::int64_t n, float* out) {
  if (out != x) __builtin_memcpy(out, x, static_cast<std::size_t>(n) * sizeof(float));
  const F32 scale = set1(args.scale);
  for (float* y = out; y < out + n; y += args.order) {
    std::int64_t step = args.core;
    if (step == 1 && args.order >= 16) {
      for (std::int64_t i = 0; i < args.order; i += 16) hadamard_16(y + i);
      step = 16;
    }
    for (; step < args.order; step *= 2)
      for (std::int64_t base = 0; base < args.order; base += 2 * step)
        for (std::int64_t i = base; i < base + step; i += 16) {
          const int count = count_of(i, base + step);
          const F32 a = load_n(y + i, count), b = load_n(y + i + step, count);
          store_n(y + i, add(a, b), count);
          store_n(y + i + step, sub(a, b), count);
        }
    if (args.core > 1)
      for (std::int64_t i = 0; i < args.order; i += args.core) hadamard_core(args, y + i);
    for (std::int64_t i = 0; i < args.order; i += 16) {
      const int count = count_of(i, args.order);
      store_n(y + i, mul(load_n(y + i, count), scale), count);
    }
  }
}

void swiglu(const float* gate, const float* up, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const int count = count_of(i, n);
    const F32 g = load_n(gate + i, count);
    const F32 silu = div(g, add(set1(1.f), exp(sub(set1(0.f), g))));
    store_n(out + i, mul(silu, load_n(up + i, count)), count);
  }
}

/// GELU as x / (1 + e^-2u): the tanh form without a tanh.
void geglu(const float* gate, const float* up, std::int64_t n, float* out) {
  const F32 linear = set1(-1.5957691216057308f), cubic = set1(-0.071354816272600244f);  // -2 sqrt(2/pi), times 0.044715
  for (std::int64_t i = 0; i < n; i += 16) {
    const int count = count_of(i, n);
    const F32 g = load_n(gate + i, count);
    const F32 exponent = mul(g, fma(mul(g, g), cubic, linear));
    store_n(out + i, mul(div(g, add(set1(1.f), exp(exponent))), load_n(up + i, count)), count);
  }
}

/// 1 - 2 / (1 + e^2y) is tanh y to within an ulp of 1, exact at both ends.
void softcap(const float* z, float cap, std::int64_t n, float* out) {
  const F32 twice = set1(2.f / cap), one = set1(1.f), two = set1(2.f), scale = set1(cap);
  for (std::int64_t i = 0; i < n; i += 16) {
    const int count = count_of(i, n);
    const F32 grown = exp(mul(load_n(z + i, count), twice));
    store_n(out + i, mul(scale, sub(one, div(two, add(one, grown)))), count);
  }
}

void add_rows(const float* a, const float* b, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const int count = count_of(i, n);
    store_n(out + i, add(load_n(a + i, count), load_n(b + i, count)), count);
  }
}

void add_scaled(const float* x, float scale, std::int64_t n, float* out) {
  const F32 factor = set1(scale);
  for (std::int64_t i = 0; i < n; i += 16) {
    const int count = count_of(i, n);
    store_n(out + i, fma(load_n(x + i, count), factor, load_n(out + i, count)), count);
  }
}

void to_half(const float* x, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const int count = count_of(i, n);
    std::uint16_t words[16];
    store_half(words, load_n(x + i, count));
    __builtin_memcpy(out + i, words, static_cast<std::size_t>(count) * 2);
  }
}

void to_bf16(const float* x, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const int count = count_of(i, n);
    std::uint16_t words[16];
    store_words(words, shift_right<16>(round_to_bf16(load_n(x + i, count))));
    __builtin_memcpy(out + i, words, static_cast<std::size_t>(count) * 2);
  }
}

void to_q8_0(const float* x, std::int64_t n, std::byte* out) {
  const I32 magnitude = set1(std::int32_t{0x7fffffff});
  const F32 magic = set1(12582912.f);  // 1.5 * 2^23: adding it rounds to the nearest integer, ties to even
  for (std::int64_t i = 0; i < n; i += 32, out += 34) {
    // Compared as integers, absolute values order with NaN above infinity, so neither is missed; the scale shows them.
    const I32 peak = max(bit_and(as_i32(load(x + i)), magnitude), bit_and(as_i32(load(x + i + 16)), magnitude));
    const std::int32_t peak_bits = reduce_max(peak);
    float amax;
    __builtin_memcpy(&amax, &peak_bits, 4);
    std::uint16_t scale[16];
    store_half(scale, set1(amax / 127.f));
    __builtin_memcpy(out, scale, 2);
    const F32 inverse = set1(amax < 0x1.0p-120f ? 0.f : 127.f / amax);
    std::int8_t codes[32];
    for (int half = 0; half < 32; half += 16) {
      const F32 scaled = min(max(mul(load(x + i + half), inverse), set1(-127.f)), set1(127.f));
      store_bytes(codes + half, sub(as_i32(add(scaled, magic)), as_i32(magic)));
    }
    __builtin_memcpy(out + 2, codes, 32);
  }
}

/// The value furthest from zero becomes -8 steps, as in GGML. Against a step of max|x| / 7, which would represent both
/// signs alike, that is an error of 8.6 instead of 9.7 % on normal values; the best of nine steps would reach 8.2 %.
void to_q4_0(const float* x, std::int64_t n, std::byte* out) {
  const I32 magnitude = set1(std::int32_t{0x7fffffff});
  const F32 magic = set1(12582912.f), zero = set1(0.f);  // rounds as in to_q8_0()
  for (std::int64_t i = 0; i < n; i += 32, out += 18) {
    const F32 low = load(x + i), high = load(x + i + 16);
    const std::int32_t peak_bits = reduce_max(max(bit_and(as_i32(low), magnitude), bit_and(as_i32(high), magnitude)));
    float amax;
    __builtin_memcpy(&amax, &peak_bits, 4);
    // NaN is ignored here: a scale that is not finite shows it, whatever its sign.
    const float most = reduce_max(max(low, max(high, zero)));
    const float step = most == amax ? amax * -0.125f : amax * 0.125f;
    std::uint16_t scale[16];
    store_half(scale, set1(step));
    __builtin_memcpy(out, scale, 2);
    const F32 inverse = set1(amax < 0x1.0p-120f ? 0.f : 1.f / step);
    std::int8_t codes[32];
    for (int half = 0; half < 32; half += 16) {
      const F32 scaled = min(max(mul(load(x + i + half), inverse), set1(-8.f)), set1(7.f));
      store_bytes(codes + half, add(sub(as_i32(add(scaled, magic)), as_i32(magic)), set1(std::int32_t{8})));
    }
    for (int j = 0; j < 16; ++j) out[2 + j] = static_cast<std::byte>(codes[j] | codes[j + 16] << 4);
  }
}

void encode(TensorType type, const float* x, std::int64_t n, std::byte* out) {
  switch (type) {
    case TensorType::kF16:
      return to_half(x, n, reinterpret_cast<std::uint16_t*>(out));
    case TensorType::kBF16:
      return to_bf16(x, n, reinterpret_cast<std::uint16_t*>(out));
    case TensorType::kQ8_0:
      return to_q8_0(x, n, out);
    case TensorType::kQ4_0:
      return to_q4_0(x, n, out);
    default:
      __builtin_memcpy(out, x, static_cast<std::size_t>(n) * sizeof(float));
  }
}

/// A few dimensions of K tend to be much larger than the others, and their block's step would be too coarse for the
/// rest. A Walsh-Hadamard transform spreads them over the block (QuaRot, Ashkboos et al. 2024). Queries are rotated
/// alike, which leaves the scores as they are.
void encode_key(TensorType type, const float* x, std::int64_t n, std::byte* out) {
  if (type != TensorType::kQ4_0) return encode(type, x, n, out);
  for (std::int64_t i = 0; i < n; i += 32, out += 18) {
    alignas(64) float y[32];
    for (int j = 0; j < 32; ++j) y[j] = x[i + j] * 0.125f;
    for (int step = 1; step < 32; step *= 2)
      for (int first = 0; first < 32; first += 2 * step)
        for (int j = first; j < first + step; ++j) {
          const float a = y[j], b = y[j + step];
          y[j] = a + b;
          y[j + step] = a - b;
        }
    to_q4_0(y, 32, out);
  }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
