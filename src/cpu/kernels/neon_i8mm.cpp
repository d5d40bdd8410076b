// NEON's kernels, except that SMMLA computes products with quantized weights.
#define DLLM_ISA neon_i8mm

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/simd_neon.h"
// the policy must precede the kernels based on it
#include "cpu/kernels/i8mm-inl.h"

namespace dllm::cpu {
namespace neon {
extern const KernelSet kKernels;
}
namespace neon_i8mm {
namespace {

void linear(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  // Of few rows decoding to memory would take longer than the products.
  constexpr std::int64_t kFewRows = 3;
  if (args.operands == LinearOperands::kPackedCodes && args.rows > kFewRows)
    return matrix_linear(args, n_begin, n_end, *static_cast<PanelScratch*>(scratch));
  neon::kKernels.linear(args, n_begin, n_end, scratch);
}

}  // namespace

const KernelSet& kernels();
const KernelSet& kernels() {
  static const KernelSet set = [] {
    KernelSet own = neon::kKernels;
    own.name = "neon-i8mm";
    own.linear = linear;
    return own;
  }();
  return set;
}

}  // namespace neon_i8mm
}  // namespace dllm::cpu
