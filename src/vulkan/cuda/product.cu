#include "product.cuh"

// Name, tiles of eight rows of a warp, warps of a panel's rows, panels of a block, panels of a warp, threads a block has.
#define DLLM_PRODUCT(name, tiles, row_warps, panels, wide, experts, least)                                             \
  extern "C" __global__ void __launch_bounds__(32 * panels / wide * row_warps, least)                                  \
      product_##name(const __grid_constant__ Push p) {                                                                 \
    Product<DLLM_CODES, DLLM_MINIMUM, tiles, row_warps, panels, wide, experts>::run(p);                                \
  }
DLLM_PRODUCT(r8p4, 1, 1, 4, 1, false, 3)
DLLM_PRODUCT(r32p2, 2, 2, 2, 1, false, 4)
DLLM_PRODUCT(r32p4, 2, 2, 4, 1, false, 2)
DLLM_PRODUCT(r32w2, 4, 1, 4, 2, false, 3)
DLLM_PRODUCT(pairs, 1, 1, 4, 1, true, 3)
