#include "npu_backend/accuracy/window_kernel.h"

#include "base/instruction_set.h"

namespace dllm::npu::accuracy {

namespace plain {
void add_windows(const WindowRule& rule, const WindowProduct& product, double* sums);
void widen(const std::uint16_t* from, bool bf16, std::int64_t terms, float* to);
}  // namespace plain
#if defined(__x86_64__)
namespace avx2 {
void add_windows(const WindowRule& rule, const WindowProduct& product, double* sums);
void widen(const std::uint16_t* from, bool bf16, std::int64_t terms, float* to);
}  // namespace avx2
namespace avx512 {
void add_windows(const WindowRule& rule, const WindowProduct& product, double* sums);
void widen(const std::uint16_t* from, bool bf16, std::int64_t terms, float* to);
}  // namespace avx512
namespace vnni {
void add_windows(const WindowRule& rule, const WindowProduct& product, double* sums);
void widen(const std::uint16_t* from, bool bf16, std::int64_t terms, float* to);
}  // namespace vnni
#endif

const std::vector<WindowKernel>& window_kernels() {
  static const std::vector<WindowKernel> kernels = [] {
    std::vector<WindowKernel> all = {{"plain", plain::add_windows, plain::widen}};
#if defined(__x86_64__)
    if (runs(InstructionSet::kAvx2)) all.push_back({"avx2", avx2::add_windows, avx2::widen});
    if (runs(InstructionSet::kAvx512)) all.push_back({"avx512", avx512::add_windows, avx512::widen});
    if (runs(InstructionSet::kAvx512Vnni)) all.push_back({"vnni", vnni::add_windows, vnni::widen});
#endif
    return all;
  }();
  return kernels;
}

WindowRule WindowRule::of(const OperandFormat& a, const OperandFormat& w, int contraction_bits) {
  if (!a.fixed() || !w.fixed()) return {};
  const MxFormat x = a.machine_format(), y = w.machine_format();
  const int bits = contraction_bits + mx_element(x.element).magnitude_bits + mx_element(y.element).magnitude_bits;
  const bool narrow = bits <= 31;
  return {narrow ? Kind::kNarrow : Kind::kWide, (narrow ? 31 : 63) - bits, x.fraction() + y.fraction()};
}

void add_windows(const WindowRule& rule, const WindowProduct& product, double* sums) {
  static const auto best = window_kernels().back().run;
  best(rule, product, sums);
}

void widen(const std::uint16_t* from, bool bf16, std::int64_t terms, float* to) {
  static const auto best = window_kernels().back().widen;
  best(from, bf16, terms, to);
}

}  // namespace dllm::npu::accuracy
