#pragma once

#include <span>
#include <vector>

#include "backend/kv_cache.h"
#include "backend/step_plan.h"
#include "decode/canvas.h"
#include "model/model_desc.h"

namespace dllm {

/// A step of a pass that reads drafts (Decoder::drafts()), on a branch of the sequence's cache.
struct CheckStep {
  KvCache* cache = nullptr;
  StepPlan plan{};
  std::vector<Position> predicted{};  ///< one per scored row
};

/// The steps that predict each draft from what is before it alone, as the model does with blocks of one position. One
/// step reads the block up to the last draft but one, causally. If rows predict the next token (logit_shift), that is
/// all, with one row more for the window's mask after the drafts; else each draft's mask is a row of a branch of that
/// step: it sees the drafts before it, and itself. Drafts: neighbouring masks of a window that ends at `window_end`,
/// none at position 0 of a shifted model. `branches`: check_branches() of them, as large as `cache`.
std::vector<CheckStep> check_steps(const ModelDesc& desc, const Canvas& canvas, std::span<const Edit> drafts,
                                   Position window_end, const KvCache& cache, std::span<KvCache* const> branches);

/// Branches that the steps of so many drafts need.
std::int32_t check_branches(const ModelDesc& desc, std::int32_t drafts);

}  // namespace dllm
