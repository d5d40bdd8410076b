#pragma once

#include <cstdint>

#include "graph/graph.h"
#include "model/model_desc.h"

namespace dllm {

/// The rotation of `heads` heads as the model describes it, without factors and growth; values are still to be set.
inline op::Rope rope_of(const ModelDesc& desc, std::int64_t heads) {
  return {.x = kNoId,
          .heads = static_cast<std::int32_t>(heads),
          .head_dim = static_cast<std::int32_t>(desc.head_dim),
          .dims = static_cast<std::int32_t>(desc.rope_dims),
          .layout = desc.rope_layout,
          .theta = desc.rope_theta,
          .scale = desc.rope_scale,
          .factors = kNoId,
          .out = kNoId,
          .yarn = desc.rope_yarn};
}

}  // namespace dllm
