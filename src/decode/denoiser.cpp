#include "decode/denoiser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

namespace dllm {

std::vector<Position> positions(PositionRange range) {
  std::vector<Position> result;
  for (Position p = range.begin; p < range.end; ++p) result.push_back(p);
  return result;
}

Denoiser::Denoiser(const ModelDesc& desc, Canvas canvas, Method method, DenoiseOptions options, KvCache& cache,
                   KvCache* unconditional)
    : desc_(desc),
      canvas_(std::move(canvas)),
      method_(std::move(method)),
      options_(std::move(options)),
      cache_(cache),
      unconditional_(unconditional) {
  assert(cache_.capacity() >= canvas_.size());
  assert((options_.cfg_scale != 0) == (unconditional_ != nullptr));
}

bool Denoiser::advance_window() {
  if (stop_ && !options_.exact_length) return false;
  if (window_held()) return true;
  const auto next = method_.window->next(canvas_);
  if (!next) return false;
  if (*next != window_) {
    window_ = *next;
    window_changed_ = true;  // until the next plan: a schedule may pass over the window's first steps
    window_step_ = 0;
    window_masks_at_start_ = canvas_.masked_count(window_);
  }
  return true;
}

bool Denoiser::window_held() const {
  return window_.begin >= 0 && canvas_.masked_count(window_) == 0 && method_.decoder->holds_window(context());
}

Position Denoiser::settled() const {
  const Position open = canvas_.first_masked(canvas_.prompt_end());
  const bool revisable =
      method_.decoder->revises() && window_.begin >= 0 && (canvas_.masked_count(window_) > 0 || window_held());
  return revisable ? std::min(open, std::max(canvas_.prompt_end(), window_.begin)) : open;
}

DecodeContext Denoiser::context() const {
  return {
      canvas_,      window_,         window_step_, window_masks_at_start_, static_cast<std::uint32_t>(counters_.steps),
      options_.rng, options_.latency};
}

std::span<const SequenceStep> Denoiser::prepare() {
  prepared_.clear();
  wanted_.clear();
  while (advance_window()) {
    wanted_ = method_.decoder->wanted(context());
    if (!wanted_.empty()) break;
    ++window_step_;  // the schedule decides nothing here: time passes, the model does not run
    ++counters_.steps;
  }
  if (wanted_.empty()) return {};

  StepPlan step = plan(wanted_);
  prepared_.push_back({&cache_, std::move(step), request(), std::nullopt});
  if (unconditional_) {
    SequenceStep unconditional{unconditional_, prepared_[0].plan, prepared_[0].request, std::nullopt};
    for (PlanRow& row : unconditional.plan.rows)
      if (row.position < canvas_.prompt_end()) row.token = canvas_.mask();
    prepared_[0].guidance = Guidance{1, options_.cfg_scale};
    prepared_.push_back(std::move(unconditional));
  }
  return prepared_;
}

StepPlan Denoiser::plan(const std::vector<Position>& wanted) {
  const std::int32_t shift = desc_.logit_shift;
  // Rows from which the window is predicted. Position 0 has no row before it and predicts itself (Dream).
  const PositionRange needed{std::max<Position>(0, window_.begin - shift), window_.end};
  Position horizon = canvas_.size();
  if (desc_.causal_block > 0)  // the rest of an attention block is part of what its rows see
    horizon = std::min(horizon, (window_.end + desc_.causal_block - 1) / desc_.causal_block * desc_.causal_block);
  if (!desc_.mask) horizon = canvas_.first_masked(0);  // unknown positions cannot be shown to the model
  std::vector<Position> sources;  // of the wanted predictions; positions 0 and 1 of a shifted model share one
  for (Position p : wanted)
    if (const Position source = std::max<Position>(0, p - shift); sources.empty() || sources.back() != source)
      sources.push_back(source);
  const CacheDecision decision = method_.cache->decide(
      {canvas_, cache_, needed, horizon, desc_.causal_block, window_changed_, sources, options_.latency});
  window_changed_ = false;

  StepPlan plan;
  plan.causal_block = desc_.causal_block;
  plan.visible = decision.visible;
  for (Position p : decision.rows) plan.rows.push_back({p, canvas_.token(p)});

  score_of_wanted_.clear();
  for (Position p : wanted) {
    const Position source = std::max<Position>(0, p - shift);
    const auto row = std::lower_bound(decision.rows.begin(), decision.rows.end(), source);
    assert(row != decision.rows.end() && *row == source);
    const auto index = static_cast<std::int32_t>(row - decision.rows.begin());
    if (plan.scored.empty() || plan.scored.back() != index) plan.scored.push_back(index);
    score_of_wanted_.push_back(static_cast<std::int32_t>(plan.scored.size()) - 1);
  }
  return plan;
}

ScoreRequest Denoiser::request() {
  ScoreRequest request;
  request.temperature = options_.temperature;
  request.top_k = options_.top_k;
  request.top_p = options_.top_p;
  request.rng = options_.rng;
  request.step = static_cast<std::uint32_t>(counters_.steps);
  // The mask token is no answer. It still counts in the softmax, so confidences stay the model's own.
  if (desc_.mask && !options_.compat) request.rules.push_back({*desc_.mask, false, true});
  if (options_.suppress_eos && desc_.eos) request.rules.push_back({*desc_.eos, false, false});
  if (options_.defer_eos)
    for (TokenId id : options_.stop_ids) {
      // Upstream's flag works through a shared buffer: at temperature > 0 it misses the end-of-text token (B.1.4).
      if (options_.compat && options_.temperature > 0 && desc_.eos == id) continue;
      if (options_.suppress_eos && desc_.eos == id) continue;
      request.rules.push_back({id, true, false});
    }
  method_.decoder->configure(request);
  queries_ = method_.decoder->queries(context());
  for (const TokenQuery& query : queries_) {
    const auto at = std::lower_bound(wanted_.begin(), wanted_.end(), query.position);
    assert(at != wanted_.end() && *at == query.position);
    request.queries.push_back({score_of_wanted_[static_cast<std::size_t>(at - wanted_.begin())], query.token});
  }
  return request;
}

std::vector<Candidate> Denoiser::candidates(const Scores& scores) const {
  std::vector<Candidate> result;
  result.reserve(wanted_.size());
  std::size_t query = 0;
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    const RowScore& row = scores.rows[static_cast<std::size_t>(score_of_wanted_[i])];
    const std::size_t first = query;
    while (query < queries_.size() && queries_[query].position == wanted_[i]) ++query;
    result.push_back({wanted_[i], row.token, row.confidence, row.log_odds, row.margin, row.entropy,
                      row.token >= 0 && !row.overruled, row.logit,
                      std::span(scores.queried).subspan(first, query - first)});
  }
  return result;
}

Error Denoiser::not_a_number() const {
  return {ErrorCode::kInvalidFile,
          fmt::format("the model's predictions for positions {} to {} are not numbers", window_.begin, window_.end - 1),
          fmt::format("step {}", counters_.steps), "the weights are damaged, or were quantized from damaged ones"};
}

Expected<DenoiseStep> Denoiser::absorb(std::span<const Scores> scores) {
  for (const SequenceStep& step : prepared_) {
    counters_.nfe += 1;
    counters_.rows_forwarded += static_cast<std::int64_t>(step.plan.rows.size());
    counters_.rows_scored += static_cast<std::int64_t>(step.plan.scored.size());
  }
  const std::vector<Candidate> options = candidates(scores[0]);
  DenoiseStep step;
  step.window = window_;
  const Position masks = canvas_.masked_count(window_);
  const std::vector<Edit> edits = method_.decoder->decode(context(), options);
  for (const Edit& edit : edits)
    if (canvas_.apply(edit)) step.edits.push_back(edit);

  if (masks > 0 && canvas_.masked_count(window_) >= masks && !method_.decoder->keeps_schedule()) {
    const Candidate* best = nullptr;
    for (const Candidate& candidate : options)
      if (canvas_.masked(candidate.position) && candidate.token >= 0 && candidate.token != canvas_.mask() &&
          (!best || candidate.log_odds > best->log_odds))
        best = &candidate;
    if (!best) return not_a_number();
    step.edits.push_back(commit(*best));
    canvas_.apply(step.edits.back());
    step.forced = true;
    ++counters_.forced;
  }
  ++window_step_;
  ++counters_.steps;
  find_stop();
  return step;
}

void Denoiser::find_stop() {
  const Position end = settled();
  for (Position p = canvas_.prompt_end(); p < end; ++p)
    if (std::find(options_.stop_ids.begin(), options_.stop_ids.end(), canvas_.token(p)) != options_.stop_ids.end()) {
      stop_ = p;
      return;
    }
}

}  // namespace dllm
