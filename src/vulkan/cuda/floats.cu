// Products with packed floats: every output is a sum over k ascending; with BF16 weights, rows are rounded to BF16, and of
// each pair of k the odd one comes first (src/cpu/kernels/floats-inl.h).
#include "exact.cuh"
#include "pairs.cuh"

struct FloatsPush {
  const std::uint32_t* panels;
  const float* x;  // [rows][k]
  const float* bias;
  float* result;
  const int* count;
  const float* route;
  std::uint32_t k, n, panel_words, has_bias, used, expert_words, shared_rows;
};

enum Type { kF32, kF16, kBF16 };
constexpr int kThreads = 128, kOfThread = 4;  // rows of an output that a thread computes

// kGroups times four rows, and so many panels that every thread has an output.
template <Type kType, int kGroups, int kChunk>
struct Product {
  static constexpr int kRows = kGroups * kOfThread, kPanels = kThreads / 16 / kGroups;
  static constexpr int kWords = kType == kF32 ? kChunk * 16 : kChunk * 8;  // of a chunk of a panel
  struct Shared {
    alignas(16) std::uint32_t weights[2][kPanels][kWords];
    alignas(16) float rows[2][kRows][kChunk + 4];
    Rows<kRows> places;
  };

  static __device__ void tile(const FloatsPush& p, Shared& s, const std::uint32_t* matrix, int found) {
    const int thread = threadIdx.x, output = thread % 16, group = thread / 16 % kGroups, own = thread / 16 / kGroups;
    const int panels = (static_cast<int>(p.n) + 15) / 16, first_panel = blockIdx.x * kPanels;
    const int k = p.k, chunks = (k + kChunk - 1) / kChunk;
    const auto fetch = [&](int chunk) {
      const int at = chunk * kChunk, some = min(kChunk, k - at);
      // An odd k of BF16 is followed by zeros, so that words are whole.
      const int words = kType == kF32 ? some * 16 : kType == kF16 ? some * 8 : (some + 1) / 2 * 16;
      for (int i = thread; i < kPanels * kWords / 4; i += kThreads) {
        const int panel = i / (kWords / 4), word = i % (kWords / 4) * 4;
        if (word < words)
          copy_async<16>(&s.weights[chunk & 1][panel][word],
                         matrix + static_cast<std::size_t>(min(first_panel + panel, panels - 1)) * p.panel_words +
                             static_cast<std::size_t>(at) * (kType == kF32 ? 16 : 8) + word);
      }
      for (int i = thread; i < found * kChunk; i += kThreads) {
        const int row = i / kChunk, column = i % kChunk;
        if (column < some)
          copy_async<4>(&s.rows[chunk & 1][row][column], p.x + static_cast<std::size_t>(s.places.source[row]) * k + at + column);
      }
      commit();
    };
    float total[kOfThread] = {};
    fetch(0);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (chunk + 1 < chunks) fetch(chunk + 1);
      else commit();
      wait<1>();
      __syncthreads();
      const int some = min(kChunk, k - chunk * kChunk);
      float(&rows)[kRows][kChunk + 4] = s.rows[chunk & 1];
      if (kType == kBF16) {
        for (int i = thread; i < found * kChunk; i += kThreads)
          rows[i / kChunk][i % kChunk] = __uint_as_float(bf16_bits(rows[i / kChunk][i % kChunk]));
        __syncthreads();
      }
      const std::uint32_t* const w = s.weights[chunk & 1][own];
      // Four of k, in their order.
      const auto turn = [&](int i, int count) {
        float weight[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (kType == kF32) weight[j] = __uint_as_float(w[16 * (i + j) + output]);
          if (kType == kF16) weight[j] = widen(w[8 * (i + j) + output / 2] >> (output % 2 * 16) & 0xffffu);
          if (kType == kBF16) {
            const std::uint32_t pair = w[(i + j) / 2 * 16 + output];
            weight[j] = __uint_as_float(j % 2 != 0 ? pair & 0xffff0000u : pair << 16);
          }
        }
#pragma unroll
        for (int r = 0; r < kOfThread; ++r) {
          const float4 x = *reinterpret_cast<const float4*>(&rows[kOfThread * group + r][i]);
          const float four[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int at = kType == kBF16 ? j ^ 1 : j;
            if (at < count) total[r] = __fmaf_rn(four[at], weight[at], total[r]);
          }
        }
      };
      if (kOfThread * group < found) {
        if (some == kChunk) {
#pragma unroll 4
          for (int i = 0; i < kChunk; i += 4) turn(i, 4);
        } else {
#pragma unroll 1
          for (int i = 0; i < some; i += 4) turn(i, some - i);
        }
      }
      __syncthreads();
    }
    wait<0>();
    const std::uint32_t at = (first_panel + own) * 16 + output;
    if (at >= p.n) return;
#pragma unroll
    for (int r = 0; r < kOfThread; ++r)
      if (kOfThread * group + r < found)
        p.result[static_cast<std::size_t>(s.places.target[kOfThread * group + r]) * p.n + at] =
            p.has_bias != 0 ? __fadd_rn(total[r], p.bias[at]) : total[r];
  }
};

template <Type kType>
__device__ inline void rows_of(const FloatsPush& p) {
  using P = Product<kType, 8, 64>;
  __shared__ typename P::Shared s;
  const int found = take_rows(s.places, blockIdx.y * P::kRows, *p.count);
  if (found > 0) P::tile(p, s, p.panels, found);
}
template <Type kType>
__device__ inline void pairs_of(const FloatsPush& p) {
  using P = Product<kType, 2, 32>;
  __shared__ typename P::Shared s;
  const std::uint32_t* const matrix = p.panels + static_cast<std::size_t>(blockIdx.y) * p.expert_words;
  const int pairs = *p.count * static_cast<int>(p.used);
  for (int begin = 0; begin < pairs;) {
    const int found = take_pairs(s.places, blockIdx.y, begin, pairs, p.route, p.used, p.shared_rows != 0);
    if (found == 0) return;
    P::tile(p, s, matrix, found);
  }
}

#define DLLM_PRODUCTS(name, type)                                                                                          \
  extern "C" __global__ void __launch_bounds__(kThreads) floats_##name(const __grid_constant__ FloatsPush p) { rows_of<type>(p); } \
  extern "C" __global__ void __launch_bounds__(kThreads) floats_##name##_pairs(const __grid_constant__ FloatsPush p) {      \
    pairs_of<type>(p);                                                                                                      \
  }
DLLM_PRODUCTS(f32, kF32)
DLLM_PRODUCTS(f16, kF16)
DLLM_PRODUCTS(bf16, kBF16)
