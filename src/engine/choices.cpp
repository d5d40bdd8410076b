#include "engine/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "backend/lead.h"
#include "base/to_size.h"
#include "base/try.h"
#include "decode/loop/denoise_pass.h"

namespace dllm {
namespace {

Expected<void> check_answer(const ModelDesc& desc, const std::vector<TokenId>& prompt,
                            const std::vector<TokenId>& answer, std::size_t needed, Position canvas) {
  const auto bad = [](std::string what, std::string hint = "") {
    return Error{ErrorCode::kUsage, std::move(what), "choices", std::move(hint)};
  };
  if (desc.canvas.length > 0)
    return Error{ErrorCode::kUnsupported, "a model that refines canvases gives no probability of a text", "choices",
                 ""};
  for (const auto* ids : {&prompt, &answer})
    for (const TokenId id : *ids)
      if (id < 0 || id >= desc.vocab)
        return bad(fmt::format("token id {} is outside the vocabulary of {}", id, desc.vocab));
  if (static_cast<Position>(prompt.size()) < desc.logit_shift)
    return bad("a model that predicts next tokens needs at least one prompt token");
  if (needed > to_size(canvas))
    return bad(fmt::format("a choice of {} tokens with its end exceeds the canvas of {}", needed, canvas));
  if (static_cast<std::int64_t>(prompt.size()) + canvas > desc.context_length)
    return bad(fmt::format("{} tokens exceed the context of {}", static_cast<std::int64_t>(prompt.size()) + canvas,
                           desc.context_length),
               "shorten the prompt");
  return {};
}

/// The pass that predicts the answer's position `at`; `targets`: the tokens whose logits are wanted.
SequenceStep prediction_of(const ModelDesc& desc, const std::vector<TokenId>& known, Position canvas_end,
                           const std::vector<TokenId>& targets, KvCache* cache) {
  SequenceStep step;
  step.cache = cache;
  const auto size = static_cast<Position>(known.size());
  const Position end = desc.mask ? canvas_end : size;
  for (Position p = 0; p < end; ++p) step.plan.rows.push_back({p, p < size ? known[to_size(p)] : *desc.mask});
  step.plan.visible = {{0, end}};
  step.plan.causal_block = desc.causal_block;
  step.plan.scored = {size - desc.logit_shift};
  lead_decided(desc, *cache, step.plan);
  for (const TokenId target : targets) step.request.queries.push_back({0, target});
  return step;
}

}  // namespace

Expected<double> answer_log_prob(Backend& backend, const std::vector<TokenId>& prompt,
                                 const std::vector<TokenId>& answer, const std::vector<TokenId>& stops,
                                 Position canvas) {
  const ModelDesc& desc = backend.desc();
  const std::size_t predictions = answer.size() + (stops.empty() ? 0 : 1);
  DLLM_CHECK_OK(check_answer(desc, prompt, answer, predictions, canvas));
  const Position end = static_cast<Position>(prompt.size()) + canvas;
  std::vector<SequenceStep> batch;
  std::vector<std::unique_ptr<KvCache>> caches;
  std::vector<TokenId> known = prompt;
  for (std::size_t i = 0; i < predictions; ++i) {
    DLLM_TRY(auto cache, backend.make_cache(end));
    const std::vector<TokenId> targets = i < answer.size() ? std::vector<TokenId>{answer[i]} : stops;
    batch.push_back(prediction_of(desc, known, end, targets, cache.get()));
    caches.push_back(std::move(cache));
    if (i < answer.size()) known.push_back(answer[i]);
  }
  if (batch.empty()) return 0.0;
  DLLM_TRY(const auto all, backend.forward(batch));
  double sum = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    // The reduction reports the best token's probability and logit; the others' follow from the differences of logits.
    const RowScore& row = all[i].rows.front();
    double share = 0;
    for (const float logit : all[i].queried)
      share += std::exp(static_cast<double>(logit) - static_cast<double>(row.logit));
    const double log = std::log(row.confidence) + std::log(share);
    if (std::isnan(log)) return not_a_number(static_cast<Position>(prompt.size() + i), 0);
    sum += log;
  }
  return sum;
}

Expected<std::vector<std::vector<TokenId>>> choice_ids(const LanguageModel& model,
                                                       const std::vector<std::string>& choices) {
  const auto bad = [](std::string what) { return Error{ErrorCode::kUsage, std::move(what), "choices", ""}; };
  if (choices.empty()) return bad("there are no choices");
  std::vector<std::vector<TokenId>> all;
  for (auto one = choices.begin(); one != choices.end(); ++one) {
    if (one->empty()) return bad("a choice is empty");
    if (std::find(choices.begin(), one, *one) != one) return bad(fmt::format("'{}' is given twice", *one));
    DLLM_TRY(auto ids, model.tokenize(*one, /*special=*/false));
    all.push_back(std::move(ids));
  }
  return all;
}

Position choice_canvas(const std::vector<std::vector<TokenId>>& choices) {
  std::size_t longest = 0;
  for (const auto& one : choices) longest = std::max(longest, one.size());
  return static_cast<Position>(longest) + 1;
}

void set_shares(std::vector<ChoiceScore>& scores) {
  double best = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const ChoiceScore& one : scores) best = std::max(best, one.log_probability);
  for (ChoiceScore& one : scores) sum += one.probability = std::exp(one.log_probability - best);
  for (ChoiceScore& one : scores) one.probability /= sum;
}

}  // namespace dllm
