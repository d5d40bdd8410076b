#include "product.cuh"

// Of a block: tiles of eight rows for each warp, warps that share a panel's rows, panels, and panels for each warp. Then
// whether it is for the pairs of an expert, and how many blocks a multiprocessor must hold, which bounds registers.
#define DLLM_PRODUCT(name, tiles, row_warps, panels, wide, experts, blocks)                    \
  DLLM_KERNEL void __launch_bounds__(32 * panels / wide * row_warps, blocks)                   \
      product_##name(const __grid_constant__ Push p) {                                         \
    Product<DLLM_CODES, DLLM_MINIMUM, tiles, row_warps, panels, wide, experts>::run(p);        \
  }
DLLM_PRODUCT(r8p4, 1, 1, 4, 1, false, 3)
DLLM_PRODUCT(r32p2, 2, 2, 2, 1, false, 4)
DLLM_PRODUCT(r32p4, 2, 2, 4, 1, false, 2)
DLLM_PRODUCT(r32w2, 4, 1, 4, 2, false, 3)  // not chosen yet: dllm_bench_vulkan measures it
DLLM_PRODUCT(pairs, 1, 1, 4, 1, true, 3)
