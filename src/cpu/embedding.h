#pragma once

#include <cstdint>

#include "backend/step_plan.h"
#include "graph/graph.h"
#include "model/weights.h"

namespace dllm::cpu {

/// A row of op::Embed: n floats of the table's row of `token`, with the row's mixture (nullptr: none). Throws
/// std::bad_alloc.
void embed_row(const op::Embed& o, const WeightView& table, TokenId token, const RowMixture* mixture, std::int64_t n,
               float* out);

}  // namespace dllm::cpu
