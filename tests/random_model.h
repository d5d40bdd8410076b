#pragma once

#include <memory>
#include <string>

#include "model/model.h"

namespace dllm::test {

/// Shape and type of a small model with random weights.
struct RandomModel {
  std::string architecture = "llada";
  std::int64_t width = 64, layers = 2, heads = 4, kv_heads = 4, ffn_width = 96, vocab = 80;
  TensorType type = TensorType::kF32;  ///< of the matrices; rows that do not fit its blocks stay F32
  std::uint64_t seed = 1;
  /// Of architectures with experts; sigmoid scores include a selection bias.
  ExpertsDesc experts = {.count = 8, .used = 3, .width = 32, .shared_width = 0};
  /// Of drafters; their embedding, and their head unless `vocab` is set, are left to the target.
  DrafterDesc drafter = {.target_layers = {0, 1}, .block = 6};
  std::int32_t drafter_window = 0;  ///< of every other layer of a drafter; 0: none
};

/// The model as if read from a file; deterministic in `spec`.
ModelSource random_source(const RandomModel& spec);

}  // namespace dllm::test
