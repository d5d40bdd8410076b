// Operators over rows: norms, codes for products, gated units.
#include "exact.cuh"

namespace {

// Whether a block's row is one of `count` times `pairs`; without a count all are.
__device__ inline bool runs(const int* count, std::uint32_t pairs) {
  return count == nullptr || blockIdx.y < static_cast<std::uint32_t>(*count) * pairs;
}

}  // namespace

struct NormPush {
  const float* x;
  const float* gain;
  float* result;
  const int* count;
  std::uint32_t slice, groups, has_gain;
  float epsilon;
};

extern "C" __global__ void __launch_bounds__(256) rms_norm(const __grid_constant__ NormPush p) {
  constexpr int kPart = 4096;
  __shared__ float part[kPart];
  __shared__ float squares[16];
  if (!runs(p.count, 1)) return;
  const int thread = threadIdx.x, threads = blockDim.x;
  const std::size_t base = (static_cast<std::size_t>(blockIdx.y) * p.groups + blockIdx.x) * p.slice;
  float sum = 0.0f;
  for (std::uint32_t first = 0; first < p.slice; first += kPart) {
    const int count = min(kPart, static_cast<int>(p.slice - first));
    for (int i = thread; i < count; i += threads) part[i] = p.x[base + first + i];
    __syncthreads();
    if (thread < 16) {
      int i = thread;
      for (; i + 240 < count; i += 256) {
        float values[16];
#pragma unroll
        for (int j = 0; j < 16; ++j) values[j] = part[i + 16 * j];
#pragma unroll
        for (int j = 0; j < 16; ++j) sum = __fmaf_rn(values[j], values[j], sum);
      }
      for (; i < count; i += 16) sum = __fmaf_rn(part[i], part[i], sum);
    }
    if (first + kPart < p.slice) __syncthreads();
  }
  if (thread < 16) squares[thread] = sum;
  __syncthreads();
  // The tree of the kernels' reduce_add(): i with i + 8, then 4, 2, 1.
  float eight[8], four[4], two[2];
#pragma unroll
  for (int i = 0; i < 8; ++i) eight[i] = __fadd_rn(squares[i], squares[i + 8]);
#pragma unroll
  for (int i = 0; i < 4; ++i) four[i] = __fadd_rn(eight[i], eight[i + 4]);
#pragma unroll
  for (int i = 0; i < 2; ++i) two[i] = __fadd_rn(four[i], four[i + 2]);
  const float all = __fadd_rn(two[0], two[1]);
  const float inverse =
      __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(all, static_cast<float>(p.slice)), p.epsilon)));
  const bool kept = p.slice <= kPart;
  for (std::uint32_t i = thread; i < p.slice; i += threads) {
    const float normal = __fmul_rn(kept ? part[i] : p.x[base + i], inverse);
    p.result[base + i] = p.has_gain != 0 ? __fmul_rn(normal, p.gain[i]) : normal;
  }
}

struct QuantizePush {
  const float4* x;
  std::uint32_t* values;
  float* scales;
  int* sums;
  const int* count;
  std::uint32_t k, pairs;  // rows of x for each that is counted
};

// Eight threads quantize a block of 32.
template <bool kExactScales>
__device__ inline void quantize(const QuantizePush& p) {
  const std::uint32_t blocks = p.k / 32, at = blockIdx.x * 32 + threadIdx.x / 8, lane = threadIdx.x % 8;
  if (!runs(p.count, p.pairs)) return;
  const bool inside = at < blocks;
  const std::size_t block = static_cast<std::size_t>(blockIdx.y) * blocks + min(at, blocks - 1);
  const float4 four = p.x[8 * block + lane];
  const float values[4] = {four.x, four.y, four.z, four.w};
  int peak = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) peak = max(peak, __float_as_int(values[i]) & 0x7fffffff);
#pragma unroll
  for (int far = 1; far < 8; far *= 2) peak = max(peak, __shfl_xor_sync(~0u, peak, far));
  const float most = __int_as_float(peak);
  float scale = 0.0f, inverse = 0.0f;
  if (!(most < power_of_two(-120))) {
    if (kExactScales) {
      scale = __fdiv_rn(most, 127.0f);
      inverse = __fdiv_rn(127.0f, most);
    } else {
      std::uint32_t bits = __float_as_uint(__fdiv_rn(most, 127.0f));
      if (bits < 0x7f800000u) bits = (bits + 0x1fffffu) & ~0x1fffffu;
      scale = __uint_as_float(bits);
      inverse = __fdiv_rn(1.0f, scale);
    }
  }
  std::uint32_t packed = 0;
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float scaled = __fmul_rn(values[i], inverse);
    scaled = scaled > -127.0f ? scaled : -127.0f;
    scaled = scaled < 127.0f ? scaled : 127.0f;
    const int code = __float_as_int(__fadd_rn(scaled, kMagic)) - kMagicBits;
    sum += code;
    packed |= static_cast<std::uint32_t>(code & 255) << (8 * i);
  }
  sum += __shfl_xor_sync(~0u, sum, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (!inside) return;
  p.values[8 * block + lane] = packed;
  if (lane % 4 == 0) p.sums[2 * block + lane / 4] = sum;
  if (lane == 0) p.scales[block] = scale;
}
extern "C" __global__ void __launch_bounds__(256) quantize_exact(const __grid_constant__ QuantizePush p) { quantize<true>(p); }
extern "C" __global__ void __launch_bounds__(256) quantize_rounded(const __grid_constant__ QuantizePush p) {
  quantize<false>(p);
}

struct GluPush {
  const float* gate;
  const float* up;
  float* result;
  const int* count;
  std::uint32_t width, has_up, pairs;
};

template <bool kGelu>
__device__ inline void glu(const GluPush& p) {
  const std::uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= p.width || !runs(p.count, p.pairs)) return;
  const std::size_t at = static_cast<std::size_t>(blockIdx.y) * p.width + i;
  const float g = p.gate[at];
  const float exponent = kGelu ? __fmul_rn(g, __fmaf_rn(__fmul_rn(g, g), bits_of(0xbd922279u), bits_of(0xbfcc422au)))
                               : __fsub_rn(0.0f, g);
  const float activated = __fdiv_rn(g, __fadd_rn(1.0f, exponential(exponent)));
  p.result[at] = p.has_up != 0 ? __fmul_rn(activated, p.up[at]) : activated;
}
extern "C" __global__ void __launch_bounds__(256) glu_silu(const __grid_constant__ GluPush p) { glu<false>(p); }
extern "C" __global__ void __launch_bounds__(256) glu_gelu(const __grid_constant__ GluPush p) { glu<true>(p); }
