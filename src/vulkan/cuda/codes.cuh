// Rows as int8 codes with a scale per 32, for products with packed codes: as shaders/quantize.comp.
#pragma once
#include "exact.cuh"

namespace {

// Where a product's codes of rows go: values [rows][k], scales [rows][k / 32], sums [rows][k / 16]. No values: nowhere.
struct Codes {
  std::uint32_t* values;
  float* scales;
  int* sums;
};

// Eight neighbouring threads quantize a block of 32: four numbers each. All threads of a warp call it; `at` is the block's
// place among all rows' blocks.
__device__ inline void quantize(const float4& four, std::uint32_t exact, const Codes& to, std::size_t at, bool inside) {
  const float values[4] = {four.x, four.y, four.z, four.w};
  const int lane = threadIdx.x % 8;
  // As integers, absolute values order with NaN above infinity, so that neither is missed.
  int peak = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) peak = max(peak, __float_as_int(values[i]) & 0x7fffffff);
#pragma unroll
  for (int far = 1; far < 8; far *= 2) peak = max(peak, __shfl_xor_sync(~0u, peak, far));
  const float most = __int_as_float(peak);
  float scale = 0.0f, inverse = 0.0f;
  if (!(most < power_of_two(-120))) {
    scale = __fdiv_rn(most, 127.0f);
    if (exact != 0) {
      inverse = __fdiv_rn(127.0f, most);
    } else {
      std::uint32_t bits = __float_as_uint(scale);
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
  to.values[8 * at + lane] = packed;
  if (lane % 4 == 0) to.sums[2 * at + lane / 4] = sum;
  if (lane == 0) to.scales[at] = scale;
}

}  // namespace
