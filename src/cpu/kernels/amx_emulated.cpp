// For tests: the tiles' kernels over the scalar policy and emulated tiles, on any processor.
#define DLLM_ISA amx_emulated

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/simd_scalar.h"
#include "cpu/kernels/tile_emulation.h"
// the policy and the tiles must precede the kernels based on them
#include "cpu/kernels/attention-tiles-inl.h"
#include "cpu/kernels/exact-tiles-inl.h"
#include "cpu/kernels/super-tiles-inl.h"

namespace dllm::cpu::amx_emulated {
namespace {

void linear(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  if (args.operands == LinearOperands::kSuper) return super_tiles_linear(args, n_begin, n_end, scratch);
  if (args.operands == LinearOperands::kPackedCodes) return exact_tiles_linear(args, n_begin, n_end, scratch);
  float_tiles_linear(args, n_begin, n_end, scratch);
}

}  // namespace

KernelSet kernels();
KernelSet kernels() {
  KernelSet set = *find_kernel_set("scalar");
  set.name = "amx-emulated";
  set.linear = linear;
  set.attention = tile_attention;
  set.bf16_tiles = true;
  set.exact_tile_rows = kExactTileRows;
  return set;
}

}  // namespace dllm::cpu::amx_emulated
