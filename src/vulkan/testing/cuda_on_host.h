#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

// The kernels of cuda/ on this processor: a block's threads take turns, and wait for each other where the source says
// so. Slow, and the same bits: tests compare every kernel with the CPU's where there is no card. Copies that run beside
// other work are done at once, so a missing wait is not seen here.

#define DLLM_KERNEL [[maybe_unused]] static
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__

namespace dllm::vulkan::host_cuda {

struct Index {
  std::uint32_t x = 0, y = 0, z = 0;
};
/// Of the thread whose turn it is.
struct Place {
  Index thread, block, block_size, grid;
};
const Place& place();

/// Runs a kernel on every block of a grid, one after the other.
void run(void (*kernel)(const void* push), const void* push, std::uint32_t threads, Index grid);

/// Waits for all threads of the block, or of the warp.
void sync_block();
void sync_warp();
/// Gives `bytes` of each thread of the warp to all: [32][bytes].
void exchange(const void* mine, void* all, std::size_t bytes);

template <class T>
struct OfWarp {
  T values[32];
};
template <class T>
OfWarp<T> gather(const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  OfWarp<T> all;
  exchange(&mine, all.values, sizeof mine);
  return all;
}
inline std::uint32_t lane() { return place().thread.x % 32; }

}  // namespace dllm::vulkan::host_cuda

#define threadIdx (dllm::vulkan::host_cuda::place().thread)
#define blockIdx (dllm::vulkan::host_cuda::place().block)
#define blockDim (dllm::vulkan::host_cuda::place().block_size)

namespace {

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct int2 {
  int x, y;
};
struct alignas(16) uint4 {
  std::uint32_t x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class A, class B>
std::common_type_t<A, B> min(A a, B b) {
  using C = std::common_type_t<A, B>;
  return std::min<C>(static_cast<C>(a), static_cast<C>(b));
}
template <class A, class B>
std::common_type_t<A, B> max(A a, B b) {
  using C = std::common_type_t<A, B>;
  return std::max<C>(static_cast<C>(a), static_cast<C>(b));
}
using std::isnan;

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __double2float_rn(double a) { return static_cast<float>(a); }
inline float __uint_as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t __float_as_uint(float x) { return std::bit_cast<std::uint32_t>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline int __popc(std::uint32_t x) { return std::popcount(x); }
inline int __ffs(std::uint32_t x) { return x == 0 ? 0 : std::countr_zero(x) + 1; }
inline int __clz(std::uint32_t x) { return std::countl_zero(x); }
template <class T>
T __ldg(const T* at) {
  return *at;
}
inline std::uint32_t __byte_perm(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<std::uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
  return result;
}

inline void __syncthreads() { dllm::vulkan::host_cuda::sync_block(); }
inline void __syncwarp() { dllm::vulkan::host_cuda::sync_warp(); }
template <class T>
T __shfl_sync(unsigned, T mine, int from) {
  return dllm::vulkan::host_cuda::gather(mine).values[from];
}
template <class T>
T __shfl_xor_sync(unsigned, T mine, int far) {
  return dllm::vulkan::host_cuda::gather(mine).values[dllm::vulkan::host_cuda::lane() ^ static_cast<unsigned>(far)];
}
inline unsigned __ballot_sync(unsigned, bool mine) {
  const auto all = dllm::vulkan::host_cuda::gather(mine);
  unsigned bits = 0;
  for (unsigned i = 0; i < 32; ++i) bits |= all.values[i] ? 1U << i : 0U;
  return bits;
}

inline float widen(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x0400u) return __uint_as_float(sign | ((magnitude << 13) + 0x38000000u));
  const float small = static_cast<float>(magnitude) * 0x1p-24f;
  return sign != 0 ? -small : small;
}

template <int kBytes>
void copy_async(void* to, const void* from) {
  std::memcpy(to, from, kBytes);
}
inline void commit() {}
template <int kLeft>
void wait() {}

// Matrix j is the rows at the addresses of lanes 8 j to 8 j + 7; a lane gets four bytes of the row of its number / 4.
template <int kCount>
void load_all(std::uint32_t (&to)[kCount], const void* from) {
  const auto all = dllm::vulkan::host_cuda::gather(from);
  const std::uint32_t lane = dllm::vulkan::host_cuda::lane();
  for (unsigned j = 0; j < kCount; ++j)
    std::memcpy(&to[j], static_cast<const std::uint8_t*>(all.values[8 * j + lane / 4]) + lane % 4 * 4, 4);
}
inline void load_matrices(std::uint32_t (&to)[4], const void* from) { load_all(to, from); }
inline void load_matrices2(std::uint32_t (&to)[2], const void* from) { load_all(to, from); }

struct Operands {
  std::uint32_t a[4], b[2];
};
// PTX ISA, mma.m16n8k32: where the elements of the operands are. The accumulator begins at kMagicBits.
inline void multiply_add(int (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const auto all = dllm::vulkan::host_cuda::gather(Operands{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const std::uint32_t lane = dllm::vulkan::host_cuda::lane();
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned m = lane / 4 + e / 2 * 8, n = lane % 4 * 2 + e % 2;
    int sum = 0x4b400000;
    for (unsigned k = 0; k < 32; ++k) {
      const unsigned of = k % 16 / 4, shift = 8 * (k % 4);
      const auto code = static_cast<int>(all.values[m % 8 * 4 + of].a[m / 8 + k / 16 * 2] >> shift & 255);
      sum += code * static_cast<std::int8_t>(all.values[n * 4 + of].b[k / 16] >> shift & 255);
    }
    d[e] = sum;
  }
}

}  // namespace
