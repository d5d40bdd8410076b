#include "engine/likelihood.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/try.h"

namespace dllm {
namespace {

Expected<void> check(const ModelDesc& desc, const std::vector<TokenId>& ids, const std::vector<Position>& masked,
                     double cfg_scale) {
  if (desc.canvas.length > 0)
    return Error{ErrorCode::kUnsupported, "a model that refines canvases gives no likelihood of masked positions", "",
                 "score it by its answers"};
  const auto size = static_cast<Position>(ids.size());
  if (size > desc.context_length)
    return Error{ErrorCode::kUsage, fmt::format("{} tokens exceed the context of {}", size, desc.context_length), "",
                 ""};
  for (const TokenId id : ids)
    if (id < 0 || id >= desc.vocab)
      return Error{ErrorCode::kUsage, fmt::format("token id {} is outside the vocabulary of {}", id, desc.vocab), "",
                   ""};
  Position last = desc.logit_shift - 1;  // a shifted model predicts nothing at position 0
  for (const Position p : masked) {
    if (p <= last || p >= size)
      return Error{ErrorCode::kUsage, fmt::format("position {} cannot be scored or is out of order", p), "", ""};
    last = p;
  }
  if (cfg_scale != 0 && !desc.mask)
    return Error{ErrorCode::kUsage, "an autoregressive model cannot be guided", "--cfg-scale", ""};
  return {};
}

}  // namespace

Expected<std::vector<double>> masked_log_probs(Backend& backend, const std::vector<TokenId>& ids,
                                               const std::vector<Position>& masked, double cfg_scale, Position prompt) {
  const ModelDesc& desc = backend.desc();
  DLLM_CHECK_OK(check(desc, ids, masked, cfg_scale));
  if (masked.empty()) return std::vector<double>();
  const auto size = static_cast<Position>(ids.size());

  SequenceStep step;
  for (Position p = 0; p < size; ++p) step.plan.rows.push_back({p, ids[static_cast<std::size_t>(p)]});
  step.plan.visible = {{0, size}};
  step.plan.causal_block = desc.causal_block;
  for (std::size_t i = 0; i < masked.size(); ++i) {
    if (desc.mask) step.plan.rows[static_cast<std::size_t>(masked[i])].token = *desc.mask;
    step.plan.scored.push_back(masked[i] - desc.logit_shift);
    step.request.queries.push_back({static_cast<std::int32_t>(i), ids[static_cast<std::size_t>(masked[i])]});
  }
  DLLM_TRY(const auto cache, backend.make_cache(size));
  step.cache = cache.get();
  std::vector<SequenceStep> batch = {step};
  std::unique_ptr<KvCache> unguided;
  if (cfg_scale != 0) {
    DLLM_TRY(unguided, backend.make_cache(size));
    batch[0].guidance = Guidance{1, static_cast<float>(cfg_scale)};
    batch.push_back(step);
    batch[1].cache = unguided.get();
    for (Position p = 0; p < std::min(prompt, size); ++p)
      batch[1].plan.rows[static_cast<std::size_t>(p)].token = *desc.mask;
  }
  DLLM_TRY(const auto scores, backend.forward(batch));
  std::vector<double> logs;
  for (std::size_t i = 0; i < masked.size(); ++i) {
    // The reduction knows the best token's probability and logit; the target's differs by its logit alone.
    const RowScore& row = scores.front().rows[i];
    logs.push_back(std::log(row.confidence) + static_cast<double>(scores.front().queried[i]) -
                   static_cast<double>(row.logit));
  }
  return logs;
}

}  // namespace dllm
