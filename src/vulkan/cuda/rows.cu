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

// A block normalises a slice, which it keeps.
extern "C" __global__ void __launch_bounds__(256) rms_norm(const __grid_constant__ NormPush p) {
  constexpr int kMost = 8192;
  __shared__ alignas(16) float row[kMost];
  __shared__ float squares[16];
  if (!runs(p.count, 1)) return;
  const int thread = threadIdx.x, threads = blockDim.x, slice = p.slice;
  const std::size_t base = (static_cast<std::size_t>(blockIdx.y) * p.groups + blockIdx.x) * p.slice;
  for (int i = thread; i < slice; i += threads) {
    const float x = p.x[base + i];
    row[i] = p.other != nullptr ? __fadd_rn(x, p.other[base + i]) : x;
  }
  __syncthreads();
  if (p.other != nullptr)
    for (int i = thread; i < slice; i += threads) p.sum[base + i] = row[i];
  if (thread < 16) {
    float sum = 0.0f;
    int i = thread;
    for (; i + 240 < slice; i += 256) {
      float values[16];
#pragma unroll
      for (int j = 0; j < 16; ++j) values[j] = row[i + 16 * j];
#pragma unroll
      for (int j = 0; j < 16; ++j) sum = __fmaf_rn(values[j], values[j], sum);
    }
    for (; i < slice; i += 16) sum = __fmaf_rn(row[i], row[i], sum);
    squares[thread] = sum;
  }
  __syncthreads();
  // The tree of the kernels' reduce_add(): i with i + 8, then 4, 2, 1.
  float eight[8], four[4], two[2];
#pragma unroll
  for (int i = 0; i < 8; ++i) eight[i] = __fadd_rn(squares[i], squares[i + 8]);
#pragma unroll
  for (int i = 0; i < 4; ++i) four[i] = __fadd_rn(eight[i], eight[i + 4]);
#pragma unroll
  for (int i = 0; i < 2; ++i) two[i] = __fadd_rn(four[i], four[i + 2]);
  const float mean = __fdiv_rn(__fadd_rn(two[0], two[1]), static_cast<float>(slice));
  const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, p.epsilon)));
  for (int i = thread; i < slice; i += threads) {
    const float normal = __fmul_rn(row[i], inverse), result = p.gain != nullptr ? __fmul_rn(normal, p.gain[i]) : normal;
    p.result[base + i] = row[i] = result;
  }
  if (p.codes.values == nullptr) return;
  __syncthreads();
  for (int first = 0; first < slice; first += 4 * threads) {
    const int i = first + 4 * thread;
    const bool inside = i < slice;
    quantize(*reinterpret_cast<const float4*>(&row[inside ? i : 0]), p.exact, p.codes, (base + i) / 32, inside);
  }
}

struct QuantizePush {
  const float4* x;
  Codes codes;
  const int* count;
  std::uint32_t k, pairs, exact;
};

extern "C" __global__ void __launch_bounds__(256) quantize_rows(const __grid_constant__ QuantizePush p) {
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
extern "C" __global__ void __launch_bounds__(256) glu_silu(const __grid_constant__ GluPush p) { glu<false>(p); }
extern "C" __global__ void __launch_bounds__(256) glu_gelu(const __grid_constant__ GluPush p) { glu<true>(p); }
