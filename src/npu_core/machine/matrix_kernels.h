#pragma once

#include <cstdint>

namespace dllm::npu {

/// out[m][n] = sum over k of a[m][k] * w[k][n], dense and row-major. Sums wrap: the caller only uses those that fit.
/// Any order of addition gives the same, so these kernels may tile freely.
void multiply_i32(int m, int n, int k, const std::int32_t* a, const std::int32_t* w, std::int32_t* out);
void multiply_i64(int m, int n, int k, const std::int64_t* a, const std::int64_t* w, std::int64_t* out);

/// out[m][n * stride 1, rows out_stride apart] += a[m][k] * w[k][n], one FP32 rounding per product and per addition, k
/// ascending: the definition of the floating path, bit for bit.
void accumulate_f32(int m, int n, int k, const float* a, const float* w, float* out, std::int64_t out_stride);

}  // namespace dllm::npu
