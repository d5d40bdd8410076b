#include "npu_backend/accuracy/lane_kernel.h"

#include <string_view>

#include "npu_backend/accuracy/window_kernel.h"

namespace dllm::npu::accuracy {

namespace plain {
void fill_lane_kernel(LaneKernel& kernel);
}
#if defined(__x86_64__)
namespace avx2 {
void fill_lane_kernel(LaneKernel& kernel);
}
namespace avx512 {
void fill_lane_kernel(LaneKernel& kernel);
}
namespace vnni {
void fill_lane_kernel(LaneKernel& kernel);
}
#endif

LaneFormatInfo::LaneFormatInfo(const MxFormat& format)
    : block(format.block),
      exponent_bits(mx_element(format.element).exponent_bits),
      mantissa_bits(mx_element(format.element).mantissa_bits),
      bias(mx_element(format.element).bias),
      emax(mx_element(format.element).emax),
      fraction(format.fraction()),
      low(0),
      high((1 << (mx_element(format.element).bits - 1)) - 1),
      ceiling(exponent_bits == 0 && format.rule != MxRule::kOcp),
      max(mx_element(format.element).max) {
  low = format.rule == MxRule::kPlena ? -high - 1 : -high;
}

const std::vector<LaneKernel>& lane_kernels() {
  static const std::vector<LaneKernel> kernels = [] {
    std::vector<LaneKernel> all;
    for (const WindowKernel& window : window_kernels()) {
      LaneKernel& kernel = all.emplace_back();
      kernel.name = window.name;
      plain::fill_lane_kernel(kernel);
#if defined(__x86_64__)
      const std::string_view name = window.name;
      if (name == "avx2") avx2::fill_lane_kernel(kernel);
      if (name == "avx512") avx512::fill_lane_kernel(kernel);
      if (name == "vnni") vnni::fill_lane_kernel(kernel);
#endif
    }
    return all;
  }();
  return kernels;
}

const LaneKernel& lane_kernel() {
  static const LaneKernel& best = lane_kernels().back();
  return best;
}

}  // namespace dllm::npu::accuracy
