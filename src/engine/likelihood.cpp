#include "engine/likelihood.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/lead.h"
#include "base/try.h"

namespace dllm {
namespace {

Expected<void> check(const ModelDesc& desc, const MaskedText& text, double cfg_scale) {
  if (desc.canvas.length > 0)
    return Error{ErrorCode::kUnsupported, "a model that refines canvases gives no likelihood of masked positions", "",
                 "score it by its answers"};
  const auto size = static_cast<Position>(text.ids.size());
  if (size > desc.context_length)
    return Error{ErrorCode::kUsage, fmt::format("{} tokens exceed the context of {}", size, desc.context_length), "",
                 ""};
  for (const TokenId id : text.ids)
    if (id < 0 || id >= desc.vocab)
      return Error{ErrorCode::kUsage, fmt::format("token id {} is outside the vocabulary of {}", id, desc.vocab), "",
                   ""};
  Position last = desc.logit_shift - 1;  // in a shifted model nothing predicts position 0
  for (const Position p : text.masked) {
    if (p <= last || p >= size)
      return Error{ErrorCode::kUsage, fmt::format("position {} cannot be scored or is out of order", p), "", ""};
    last = p;
  }
  if (cfg_scale != 0 && !desc.mask)
    return Error{ErrorCode::kUsage, "an autoregressive model cannot be guided", "--cfg-scale", ""};
  return {};
}

SequenceStep step_of(const ModelDesc& desc, const MaskedText& text, KvCache* cache) {
  const auto size = static_cast<Position>(text.ids.size());
  SequenceStep step;
  for (Position p = 0; p < size; ++p) step.plan.rows.push_back({p, text.ids[static_cast<std::size_t>(p)]});
  step.plan.visible = {{0, size}};
  step.plan.causal_block = desc.causal_block;
  for (std::size_t i = 0; i < text.masked.size(); ++i) {
    const auto at = static_cast<std::size_t>(text.masked[i]);
    if (desc.mask) step.plan.rows[at].token = *desc.mask;
    step.plan.scored.push_back(text.masked[i] - desc.logit_shift);
    step.request.queries.push_back({static_cast<std::int32_t>(i), text.ids[at]});
  }
  step.cache = cache;
  lead_decided(desc, *cache, step.plan);
  return step;
}

std::vector<double> logs_of(const Scores& scores) {
  std::vector<double> logs;
  for (std::size_t i = 0; i < scores.queried.size(); ++i) {
    // The reduction reports the best token's probability and logit; the target's follows from the difference of logits.
    const RowScore& row = scores.rows[i];
    logs.push_back(std::log(row.confidence) + static_cast<double>(scores.queried[i]) - static_cast<double>(row.logit));
  }
  return logs;
}

}  // namespace

Expected<std::vector<std::vector<double>>> masked_log_probs(Backend& backend, const std::vector<MaskedText>& texts,
                                                            double cfg_scale) {
  const ModelDesc& desc = backend.desc();
  std::vector<SequenceStep> batch;
  std::vector<std::unique_ptr<KvCache>> caches;
  std::vector<std::size_t> step_of_text;  // an index into the batch; nullopt for texts without masks
  constexpr auto kNone = static_cast<std::size_t>(-1);
  for (const MaskedText& text : texts) {
    DLLM_CHECK_OK(check(desc, text, cfg_scale));
    step_of_text.push_back(text.masked.empty() ? kNone : batch.size());
    if (text.masked.empty()) continue;
    for (int pass = 0; pass < (cfg_scale != 0 ? 2 : 1); ++pass) {
      DLLM_TRY(auto cache, backend.make_cache(static_cast<Position>(text.ids.size())));
      batch.push_back(step_of(desc, text, cache.get()));
      caches.push_back(std::move(cache));
    }
    if (cfg_scale == 0) continue;
    batch[batch.size() - 2].guidance =
        Guidance{static_cast<std::int32_t>(batch.size() - 1), static_cast<float>(cfg_scale)};
    auto& unguided = batch.back().plan.rows;
    for (std::size_t p = 0; p < unguided.size() && unguided[p].position < text.prompt; ++p)
      unguided[p].token = *desc.mask;
  }
  std::vector<Scores> scores;
  if (!batch.empty()) {
    DLLM_TRY(scores, backend.forward(batch));
  }
  std::vector<std::vector<double>> logs;
  for (const std::size_t step : step_of_text)
    logs.push_back(step == kNone ? std::vector<double>() : logs_of(scores[step]));
  return logs;
}

}  // namespace dllm
