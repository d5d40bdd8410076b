#pragma once

#include <cstddef>
#include <variant>
#include <vector>

#include "backend/step_plan.h"
#include "graph/graph.h"

// The host's part of embeddings that are mixtures of tokens: a device gets them as rows from outside.

namespace dllm::npu {

/// scale * the sum of weight * row_of(token), added in the order of the tokens, in float32.
template <class RowOf>
std::vector<float> mixed_row(const RowMixture& mixture, float scale, const RowOf& row_of) {
  std::vector<float> sum;
  for (const MixedToken& token : mixture.tokens) {
    const std::vector<float> row = row_of(token.token);
    sum.resize(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) sum[i] += token.weight * row[i];
  }
  for (float& lane : sum) lane *= scale;
  return sum;
}

/// Whether the graph reads mixtures apart from tokens. Others add them to the token's embedding, on the device, which
/// no program does.
inline bool mixes_apart(const Graph& graph) {
  for (const dllm::Op& any : graph.ops)
    if (const auto* o = std::get_if<op::Embed>(&any); o != nullptr && o->part == EmbedPart::kMixture) return true;
  return false;
}

}  // namespace dllm::npu
