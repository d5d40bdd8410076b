#pragma once

#include "npu_compiler/compiler/row_work.h"

namespace dllm::npu {

/// Centres and factors of the smoothed K and V (device/smoothing.h) of a layer and a sequence, as rows of VRAM: in the
/// lanes of K and V, and in those of the queries, where several heads may share a KV head.
struct KvFactors {
  Buffer rows;                                        ///< all of them, in the order of the cache (KvPlace::factors)
  Buffer k_centre, k_inverse, v_centre, v_inverse;    ///< by slab of K
  Buffer query_factor, output_factor, output_centre;  ///< by slab of the queries

  static constexpr std::int64_t count(std::int64_t kv_slabs, std::int64_t q_slabs) {
    return 4 * kv_slabs + 3 * q_slabs;
  }
};

}  // namespace dllm::npu
