// AVX-512's kernels, except that matrix tiles compute products of the arithmetic `super`.
#define DLLM_ISA amx

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/simd_avx512.h"
// the policy must precede the kernels based on it
#include "cpu/kernels/super-tiles-inl.h"

namespace dllm::cpu {
namespace avx512 {
extern const KernelSet kKernels;
}
namespace amx {
namespace {

void linear(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  if (args.operands == LinearOperands::kSuper) return super_tiles_linear(args, n_begin, n_end, scratch);
  avx512::kKernels.linear(args, n_begin, n_end, scratch);
}

}  // namespace

const KernelSet& kernels();
const KernelSet& kernels() {
  static const KernelSet set = [] {
    KernelSet own = avx512::kKernels;
    own.name = "amx";
    own.prefers_super = true;
    own.linear = linear;
    return own;
  }();
  return set;
}

}  // namespace amx
}  // namespace dllm::cpu
