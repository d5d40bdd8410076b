// For tests: the tiles' kernels over the scalar policy and emulated tiles, on any processor.
#define DLLM_ISA amx_emulated

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/simd_scalar.h"
#include "cpu/kernels/tile_emulation.h"
// the policy and the tiles must precede the kernels based on them
#include "cpu/kernels/super-tiles-inl.h"

namespace dllm::cpu::amx_emulated {

KernelSet kernels();
KernelSet kernels() {
  KernelSet set = *find_kernel_set("scalar");
  set.name = "amx-emulated";
  set.linear = super_tiles_linear;
  return set;
}

}  // namespace dllm::cpu::amx_emulated
