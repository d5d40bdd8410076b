// op::Route without groups and blocks, as shaders/route_scores.comp and route_choice.comp: a warp decides for a row.
#include "exact.cuh"

struct RoutePush {
  const float* logits;        // [rows][experts]
  const float* bias;          // [experts], or none
  const float* expert_scale;  // [experts], or none
  float* result;              // [rows][2 used]: experts ascending, then their weights
  const int* count;
  std::uint32_t experts, used, softmax, normalize;
  float scale;
};

constexpr int kWarps = 4, kMostExperts = 256, kOfLane = kMostExperts / 32;

namespace {

// Whether key a of expert i is chosen before key b of expert j: the larger one, of equal ones that of the lower index, and
// what is no number last.
__device__ inline bool before(float a, int i, float b, int j) {
  const bool no_a = isnan(a), no_b = isnan(b);
  if (no_a != no_b) return no_b;
  if (no_a || a == b) return i < j;
  return a > b;
}

}  // namespace

DLLM_KERNEL void __launch_bounds__(32 * kWarps) route(const __grid_constant__ RoutePush p) {
  __shared__ float terms[kWarps][kMostExperts];
  __shared__ std::uint32_t chosen[kWarps][kOfLane];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.y * kWarps + warp;
  if (row >= *p.count) return;
  const int experts = p.experts;
  const float* const logits = p.logits + static_cast<std::size_t>(row) * experts;
  float score[kOfLane], key[kOfLane];
  float top = __int_as_float(0xff800000);
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const int e = lane + 32 * j;
    key[j] = e < experts ? logits[e] : 0.0f;
    if (e < experts) top = top < key[j] ? key[j] : top;
  }
#pragma unroll
  for (int far = 16; far > 0; far /= 2) {
    const float other = __shfl_xor_sync(~0u, top, far);
    top = top < other ? other : top;
  }
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const int e = lane + 32 * j;
    score[j] = p.softmax != 0 ? exponential(__fsub_rn(key[j], top)) : __fdiv_rn(1.0f, __fadd_rn(1.0f, exponential(-key[j])));
    if (e < experts) terms[warp][e] = score[j];
  }
  __syncwarp();
  if (p.softmax != 0) {
    double total = 0.0;
    if (lane == 0)
      for (int e = 0; e < experts; ++e) total = __dadd_rn(total, static_cast<double>(terms[warp][e]));
    total = __shfl_sync(~0u, total, 0);
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) score[j] = __double2float_rn(__ddiv_rn(static_cast<double>(score[j]), total));
  }
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const int e = lane + 32 * j;
    if (e < experts && p.bias != nullptr) key[j] = __fadd_rn(score[j], p.bias[e]);
  }
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const int e = lane + 32 * j;
    if (e < experts) terms[warp][e] = score[j];
  }
  unsigned taken = 0;  // of the lane's experts, a bit each
  for (std::uint32_t k = 0; k < p.used; ++k) {
    float best = 0.0f;
    int at = kMostExperts;  // none
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) {
      const int e = lane + 32 * j;
      if (e < experts && (taken >> j & 1) == 0 && (at == kMostExperts || before(key[j], e, best, at))) best = key[j], at = e;
    }
#pragma unroll
    for (int far = 16; far > 0; far /= 2) {
      const float other = __shfl_xor_sync(~0u, best, far);
      const int there = __shfl_xor_sync(~0u, at, far);
      if (there != kMostExperts && (at == kMostExperts || before(other, there, best, at))) best = other, at = there;
    }
    if (at != kMostExperts && at % 32 == lane) taken |= 1u << (at / 32);
  }
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const unsigned all = __ballot_sync(~0u, taken >> j & 1);
    if (lane == 0) chosen[warp][j] = all;
  }
  __syncwarp();
  float* const result = p.result + static_cast<std::size_t>(row) * 2 * p.used;
  // Lane i writes the i-th of the chosen, whose place among all is the number of those before it.
  double sum = 0.0;
  int found = 0, mine = -1;
  for (int j = 0; j < kOfLane; ++j)
    for (unsigned all = chosen[warp][j]; all != 0; all &= all - 1) {
      const int e = 32 * j + __ffs(all) - 1;
      sum = __dadd_rn(sum, static_cast<double>(terms[warp][e]));
      if (found++ == lane) mine = e;
    }
  if (mine < 0) return;
  const double divisor = __dadd_rn(sum, 1e-20);
  const double factor = __ddiv_rn(static_cast<double>(p.scale), p.normalize != 0 ? divisor : 1.0);
  const float weight = __double2float_rn(__dmul_rn(static_cast<double>(terms[warp][mine]), factor));
  result[lane] = static_cast<float>(mine);
  result[p.used + lane] = p.expert_scale != nullptr ? __fmul_rn(weight, p.expert_scale[mine]) : weight;
}
