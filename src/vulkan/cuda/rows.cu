// Operators over rows: norms, codes for products, gated units.
#include "codes.cuh"
#include "exact.cuh"

namespace {

// Whether a block's row is one of `count` times `pairs`; without a count all are.
__device__ inline bool runs(const int* count, std::uint32_t pairs) {
  return count == nullptr || blockIdx.y < static_cast<std::uint32_t>(*count) * pairs;
}

}  // namespace

struct NormPush {
  const float* x;
  const float* other;  // added to x first, if there is one; the sum goes to `sums`
  float* sum;
  const float* gain;
  float* result;
  const int* count;
  Codes codes;  // of the result, if it has places
  std::uint32_t slice, groups, exact;
  float epsilon;
};

// The sum of squares of a slice, as the kernels add it: sixteen lanes, then i with i + 8, 4, 2, 1. All threads get it.
__device__ inline float sum_of_squares(const float* row, int slice, float* squares) {
  const int thread = threadIdx.x;
  if (thread < 16) {
    float sum = 0.0f;
    int i = thread;
    for (; i + 496 < slice; i += 512) {
      float values[32];
#pragma unroll
      for (int j = 0; j < 32; ++j) values[j] = row[i + 16 * j];
#pragma unroll
      for (int j = 0; j < 32; ++j) sum = __fmaf_rn(values[j], values[j], sum);
    }
    for (; i < slice; i += 16) sum = __fmaf_rn(row[i], row[i], sum);
    squares[thread] = sum;
  }
  __syncthreads();
  float eight[8], four[4], two[2];
#pragma unroll
  for (int i = 0; i < 8; ++i) eight[i] = __fadd_rn(squares[i], squares[i + 8]);
#pragma unroll
  for (int i = 0; i < 4; ++i) four[i] = __fadd_rn(eight[i], eight[i + 4]);
#pragma unroll
  for (int i = 0; i < 2; ++i) two[i] = __fadd_rn(four[i], four[i + 2]);
  return __fadd_rn(two[0], two[1]);
}

__device__ inline float inverse_root(const NormPush& p, float sum) {
  const float mean = __fdiv_rn(sum, static_cast<float>(p.slice));
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, p.epsilon)));
}

constexpr int kMostNorm = 8192, kNormThreads = 256, kFours = kMostNorm / 4 / kNormThreads;

__device__ inline float4 sum_of(const float4& a, const float4& b) {
  return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w));
}
__device__ inline float4 scaled(const float4& a, float factor) {
  return make_float4(__fmul_rn(a.x, factor), __fmul_rn(a.y, factor), __fmul_rn(a.z, factor), __fmul_rn(a.w, factor));
}
__device__ inline float4 product_of(const float4& a, const float4& b) {
  return make_float4(__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y), __fmul_rn(a.z, b.z), __fmul_rn(a.w, b.w));
}

// A block normalises a slice of a multiple of four. A thread keeps its numbers, so that all loads run at once.
DLLM_KERNEL void __launch_bounds__(kNormThreads) rms_norm(const __grid_constant__ NormPush p) {
  alignas(16) __shared__ float row[kMostNorm];
  __shared__ float squares[16];
  if (!runs(p.count, 1)) return;
  const int fours = static_cast<int>(p.slice) / 4, threads = blockDim.x;
  const std::size_t base = (static_cast<std::size_t>(blockIdx.y) * p.groups + blockIdx.x) * fours;
  const float4* const x = reinterpret_cast<const float4*>(p.x) + base;
  const float4* const other = reinterpret_cast<const float4*>(p.other) + base;
  const float4* const gain = reinterpret_cast<const float4*>(p.gain);
  float4* const sum = reinterpret_cast<float4*>(p.sum) + base;
  float4* const result = reinterpret_cast<float4*>(p.result) + base;
  float4* const kept = reinterpret_cast<float4*>(row);
  float4 own[kFours], added[kFours], gains[kFours];
#pragma unroll
  for (int j = 0; j < kFours; ++j) {
    const int i = j * threads + threadIdx.x;
    if (i < fours) {
      own[j] = x[i];
      if (p.other != nullptr) added[j] = other[i];
      if (p.gain != nullptr) gains[j] = gain[i];
    }
  }
#pragma unroll
  for (int j = 0; j < kFours; ++j) {
    const int i = j * threads + threadIdx.x;
    if (i < fours) {
      if (p.other != nullptr) own[j] = sum_of(own[j], added[j]);
      kept[i] = own[j];
    }
  }
  __syncthreads();
  const float inverse = inverse_root(p, sum_of_squares(row, p.slice, squares));
#pragma unroll
  for (int j = 0; j < kFours; ++j) {
    const int i = j * threads + threadIdx.x;
    const bool inside = i < fours;
    if (inside) {
      if (p.other != nullptr) sum[i] = own[j];
      own[j] = scaled(own[j], inverse);
      if (p.gain != nullptr) own[j] = product_of(own[j], gains[j]);
      result[i] = own[j];
    }
    if (p.codes.values != nullptr && j * threads < fours) quantize(own[j], p.exact, p.codes, (base + i) / 8, inside);
  }
}

struct QuantizePush {
  const float4* x;
  Codes codes;
  const int* count;
  std::uint32_t k, pairs, exact;
};

DLLM_KERNEL void __launch_bounds__(256) quantize_rows(const __grid_constant__ QuantizePush p) {
  if (!runs(p.count, p.pairs)) return;
  const std::uint32_t blocks = p.k / 32, block = blockIdx.x * 32 + threadIdx.x / 8;
  const std::size_t at = static_cast<std::size_t>(blockIdx.y) * blocks + min(block, blocks - 1);
  quantize(p.x[8 * at + threadIdx.x % 8], p.exact, p.codes, at, block < blocks);
}

struct GluPush {
  const float* gate;
  const float* up;  // or none
  float* result;
  const int* count;
  Codes codes;  // of the result, if it has places
  std::uint32_t width, pairs, exact;
};

template <bool kGelu>
__device__ inline float gated(float g, const float* up) {
  const float exponent = kGelu ? __fmul_rn(g, __fmaf_rn(__fmul_rn(g, g), bits_of(0xbd922279u), bits_of(0xbfcc422au)))
                               : __fsub_rn(0.0f, g);
  const float activated = __fdiv_rn(g, __fadd_rn(1.0f, exponential(exponent)));
  return up != nullptr ? __fmul_rn(activated, *up) : activated;
}

// A thread has four neighbouring numbers.
template <bool kGelu>
__device__ inline void glu(const GluPush& p) {
  if (!runs(p.count, p.pairs)) return;
  const std::uint32_t i = (blockIdx.x * 256 + threadIdx.x) * 4;
  const std::size_t at = static_cast<std::size_t>(blockIdx.y) * p.width + i;
  float four[4] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (i + j < p.width) {
      four[j] = gated<kGelu>(p.gate[at + j], p.up != nullptr ? p.up + at + j : nullptr);
      p.result[at + j] = four[j];
    }
  if (p.codes.values != nullptr)
    quantize(make_float4(four[0], four[1], four[2], four[3]), p.exact, p.codes, at / 32, i < p.width);
}
DLLM_KERNEL void __launch_bounds__(256) glu_silu(const __grid_constant__ GluPush p) { glu<false>(p); }
DLLM_KERNEL void __launch_bounds__(256) glu_gelu(const __grid_constant__ GluPush p) { glu<true>(p); }
