#include "npu_core/machine/matrix_kernels.h"

#include <algorithm>
#include <type_traits>

#include "base/clones.h"

namespace dllm::npu {
namespace {

constexpr int kLanes = 32;

// Columns in chunks that stay in registers over all k. `always_inline`: the clones must compile the body themselves.
template <class T>
__attribute__((always_inline)) inline void multiply(int m, int n, int k, const T* a, const T* w, T* out) {
  using U = std::make_unsigned_t<T>;
  for (int n0 = 0; n0 < n; n0 += kLanes) {
    const int width = std::min(kLanes, n - n0);
    for (int i = 0; i < m; ++i) {
      U sum[kLanes] = {};
      const T* row = a + static_cast<std::int64_t>(i) * k;
      const T* column = w + n0;
      if (width == kLanes) {
        for (int j = 0; j < k; ++j, column += n)
          for (int lane = 0; lane < kLanes; ++lane) sum[lane] += static_cast<U>(row[j]) * static_cast<U>(column[lane]);
      } else {
        for (int j = 0; j < k; ++j, column += n)
          for (int lane = 0; lane < width; ++lane) sum[lane] += static_cast<U>(row[j]) * static_cast<U>(column[lane]);
      }
      for (int lane = 0; lane < width; ++lane)
        out[static_cast<std::int64_t>(i) * n + n0 + lane] = static_cast<T>(sum[lane]);
    }
  }
}

}  // namespace

DLLM_CLONES void multiply_i32(int m, int n, int k, const std::int32_t* a, const std::int32_t* w, std::int32_t* out) {
  multiply(m, n, k, a, w, out);
}

DLLM_CLONES void multiply_i64(int m, int n, int k, const std::int64_t* a, const std::int64_t* w, std::int64_t* out) {
  multiply(m, n, k, a, w, out);
}

DLLM_CLONES void accumulate_f32(int m, int n, int k, const float* a, const float* w, float* out,
                                std::int64_t out_stride) {
  for (int i = 0; i < m; ++i) {
    float* sums = out + i * out_stride;
    const float* row = a + static_cast<std::int64_t>(i) * k;
    for (int j = 0; j < k; ++j) {
      const float* column = w + static_cast<std::int64_t>(j) * n;
      for (int lane = 0; lane < n; ++lane) sums[lane] += row[j] * column[lane];
    }
  }
}

}  // namespace dllm::npu
