#include "decode/denoiser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/try.h"

namespace dllm {
namespace {

constexpr std::int32_t kKept = -1;  // in score_of_wanted_: the prediction in front_

}  // namespace

Denoiser::Denoiser(const ModelDesc& desc, Canvas canvas, Method method, DenoiseOptions options, KvCache& cache,
                   KvCache* unconditional)
    : desc_(desc),
      canvas_(std::move(canvas)),
      method_(std::move(method)),
      options_(std::move(options)),
      cache_(cache),
      unconditional_(unconditional),
      drafts_(options_.drafts),
      soft_masks_(options_.smooth),
      second_(options_.second) {
  assert(cache_.capacity() >= canvas_.size());
  assert((options_.cfg_scale != 0) == (unconditional_ != nullptr));
}

bool Denoiser::advance_window() {
  if (stop_ && !options_.exact_length) return false;
  if (window_held()) {
    ahead_ = window_.end;
    return true;
  }
  const auto next = method_.window->next(canvas_);
  if (!next) return false;
  if (next->range != window_) {
    window_ = next->range;
    window_step_ = 0;
    front_.reset();
    window_masks_at_start_ = canvas_.masked_count(window_);
  }
  if (next->unit != unit_)
    unit_changed_ = true;  // until the next plan: a schedule may pass over the unit's first steps
  unit_ = next->unit;
  ahead_ = next->ahead;
  return true;
}

bool Denoiser::window_held() const {
  return window_.begin >= 0 && canvas_.masked_count(window_) == 0 && method_.decoder->holds_window(context());
}

std::optional<Position> Denoiser::stop_candidate() const {
  const Position end = canvas_.first_masked(canvas_.prompt_end());
  for (Position p = canvas_.prompt_end(); p < end; ++p)
    if (std::find(options_.stop_ids.begin(), options_.stop_ids.end(), canvas_.token(p)) != options_.stop_ids.end())
      return p;
  return std::nullopt;
}

/// Whether the answer has no mask left and the decoder wants another look at it; then wanted_ is that look.
bool Denoiser::drain() {
  draining_ = false;
  if (!method_.decoder->drains() || (stop_ && !options_.exact_length) || window_.begin < 0) return false;
  const auto stop = options_.exact_length ? std::nullopt : stop_candidate();
  if (!stop && canvas_.masked_count() > 0) return false;
  wanted_ = method_.decoder->drain(context(), stop ? *stop + 1 : canvas_.size());
  draining_ = !wanted_.empty();
  if (draining_) {
    ahead_ = window_.end;
    unit_changed_ = unit_changed_ || options_.drain_full;
  } else {
    stop_ = stop_candidate();  // accepted as it stands
  }
  return draining_;
}

Position Denoiser::settled() const {
  const Position open = canvas_.first_masked(canvas_.prompt_end());
  if (!method_.decoder->revises()) return open;
  return std::min(open, std::max(canvas_.prompt_end(), method_.decoder->revisable_from(context())));
}

DecodeContext Denoiser::context() const {
  return {canvas_,
          window_,
          window_step_,
          window_masks_at_start_,
          static_cast<std::uint32_t>(counters_.steps),
          options_.rng,
          options_.latency,
          soft_masks_.least_threshold()};
}

std::vector<Position> Denoiser::draft_positions() const {
  std::vector<Position> result;
  // Nothing behind a stop token will be part of the answer.
  if (!options_.exact_length)
    for (Position p = canvas_.prompt_end(); p < window_.end; ++p)
      if (!canvas_.masked(p) &&
          std::find(options_.stop_ids.begin(), options_.stop_ids.end(), canvas_.token(p)) != options_.stop_ids.end())
        return result;
  for (Position p = window_.end; p < ahead_; ++p)
    if (canvas_.masked(p)) result.push_back(p);
  return result;
}

std::span<const SequenceStep> Denoiser::prepare() {
  prepared_.clear();
  wanted_.clear();
  if (!drain()) {
    while (advance_window()) {
      wanted_ = method_.decoder->wanted(context());
      if (!wanted_.empty()) break;
      ++window_step_;  // the schedule decides nothing here: time passes, the model does not run
      ++counters_.steps;
    }
  }
  if (wanted_.empty()) return {};
  decided_ = wanted_.size();
  if (!draining_) {
    launch_second();
    const std::vector<Position> drafts = draft_positions();
    if (drafts.empty()) ahead_ = window_.end;
    wanted_.insert(wanted_.end(), drafts.begin(), drafts.end());
  }

  queries_ = method_.decoder->queries(context());
  StepPlan step = plan();
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

/// End of what exists for the model in this pass.
Position Denoiser::horizon() const {
  if (!desc_.mask) return canvas_.first_masked(0);  // unknown positions cannot be shown to the model
  const Position end = std::max(window_.end, ahead_);
  Position horizon = canvas_.size();
  if (desc_.causal_block > 0)  // the rest of an attention block is part of what its rows see
    return std::min(horizon, (end + desc_.causal_block - 1) / desc_.causal_block * desc_.causal_block);
  if (options_.suffix == SuffixPolicy::kNone) horizon = end;
  if (options_.suffix == SuffixPolicy::kNear && horizon - end > options_.suffix_near)
    horizon = end + options_.suffix_near;
  return horizon;
}

TokenId Denoiser::shown(Position position) const {
  if (position >= window_.end && canvas_.masked(position))
    if (const auto draft = drafts_.shown(position)) return *draft;
  if (std::binary_search(wanted_.begin(), wanted_.begin() + static_cast<std::ptrdiff_t>(decided_), position))
    if (const auto token = method_.decoder->shown(position)) return *token;
  return canvas_.token(position);
}

/// The policy's rows, those that predict what is wanted, and those that are visible without ever having been forwarded
/// (a horizon that has moved).
std::vector<Position> Denoiser::plan_rows(const CacheDecision& decision, const std::vector<Position>& sources) const {
  std::vector<Position> more = sources;
  for (const PositionRange& range : decision.visible)
    for (Position p = range.begin; p < range.end; ++p)
      if (!cache_.holds(p)) more.push_back(p);
  std::sort(more.begin(), more.end());
  std::vector<Position> rows;
  std::set_union(decision.rows.begin(), decision.rows.end(), more.begin(), more.end(), std::back_inserter(rows));
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

/// Whether the kept prediction serves this pass, in which the window's first position is wanted: a question asks for
/// more than was kept, and if nothing else is wanted there would be nothing to run.
bool Denoiser::front_serves() const {
  return wanted_.size() > 1 && std::none_of(queries_.begin(), queries_.end(), [this](const TokenQuery& query) {
           return query.position == window_.begin;
         });
}

StepPlan Denoiser::plan() {
  const std::int32_t shift = desc_.logit_shift;
  const bool front_wanted = wanted_.front() == window_.begin;
  // A full pass predicts the window's first position anew. Once that is committed, nobody asks for its row either.
  const bool without_front = front_ && !unit_changed_ && (!front_wanted || front_serves());
  const bool front_kept = without_front && front_wanted;
  const auto predicted = std::span(wanted_).subspan(front_kept ? 1 : 0);  // by this pass
  // Rows from which the window is predicted. Position 0 has no row before it and predicts itself (Dream).
  const PositionRange needed{std::max<Position>(0, window_.begin - (without_front ? 0 : shift)), window_.end};
  std::vector<Position> sources;  // of the wanted predictions; positions 0 and 1 of a shifted model share one
  for (Position p : predicted)
    if (const Position source = std::max<Position>(0, p - shift); sources.empty() || sources.back() != source)
      sources.push_back(source);
  const CacheDecision decision = method_.cache->decide(
      {canvas_, cache_, needed, horizon(), desc_.causal_block, unit_changed_, sources, options_.latency});
  unit_changed_ = false;
  const std::vector<Position> rows = plan_rows(decision, sources);

  StepPlan plan;
  plan.causal_block = desc_.causal_block;
  plan.visible = decision.visible;
  for (Position p : rows) {
    plan.rows.push_back({p, shown(p)});
    const auto mixture = soft_masks_.mixture(p);
    if (canvas_.masked(p) && plan.rows.back().token == canvas_.mask() && !mixture.empty())
      plan.mixtures.push_back({static_cast<std::int32_t>(plan.rows.size()) - 1, {mixture.begin(), mixture.end()}});
  }

  score_of_wanted_.clear();
  if (front_kept) score_of_wanted_.push_back(kKept);
  for (Position p : predicted) {
    const Position source = std::max<Position>(0, p - shift);
    const auto row = std::lower_bound(rows.begin(), rows.end(), source);
    assert(row != rows.end() && *row == source);
    const auto index = static_cast<std::int32_t>(row - rows.begin());
    if (plan.scored.empty() || plan.scored.back() != index) plan.scored.push_back(index);
    score_of_wanted_.push_back(static_cast<std::int32_t>(plan.scored.size()) - 1);
  }
  return plan;
}

std::vector<TokenRule> Denoiser::rules() const {
  std::vector<TokenRule> rules;
  // The mask token is no answer. It still counts in the softmax, so confidences stay the model's own.
  if (desc_.mask && !options_.compat) rules.push_back({*desc_.mask, false, true});
  if (options_.suppress_eos && desc_.eos) rules.push_back({*desc_.eos, false, false});
  if (options_.defer_eos)
    for (TokenId id : options_.stop_ids) {
      // Upstream's flag works through a shared buffer: at temperature > 0 it misses the end-of-text token (B.1.4).
      if (options_.compat && options_.temperature > 0 && desc_.eos == id) continue;
      if (options_.suppress_eos && desc_.eos == id) continue;
      rules.push_back({id, true, false});
    }
  return rules;
}

ScoreRequest Denoiser::request() {
  ScoreRequest request;
  request.temperature = options_.temperature;
  request.top_k = options_.top_k;
  request.top_p = options_.top_p;
  request.rng = options_.rng;
  request.step = static_cast<std::uint32_t>(counters_.steps);
  request.rules = rules();
  method_.decoder->configure(request);
  soft_masks_.configure(request);
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
  const std::size_t top = scores.rows.empty() ? 0 : scores.top.size() / scores.rows.size();
  std::size_t query = 0;
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    const bool kept = score_of_wanted_[i] == kKept;
    const auto index = static_cast<std::size_t>(kept ? 0 : score_of_wanted_[i]);
    const RowScore& row = kept ? front_->score : scores.rows[index];
    const std::size_t first = query;
    while (query < queries_.size() && queries_[query].position == wanted_[i]) ++query;
    result.push_back({wanted_[i], row.token, row.confidence, row.log_odds, row.margin, row.entropy,
                      row.token >= 0 && !row.overruled, row.logit,
                      std::span(scores.queried).subspan(first, query - first),
                      kept ? std::span<const TopToken>(front_->top) : std::span(scores.top).subspan(index * top, top)});
  }
  return result;
}

void Denoiser::keep_front(const Scores& scores) {
  if (!options_.keep_front || desc_.logit_shift == 0 || draining_ || window_.begin < desc_.logit_shift ||
      wanted_.front() != window_.begin || score_of_wanted_.front() == kKept)
    return;
  const auto row = static_cast<std::size_t>(score_of_wanted_.front());
  const std::size_t top = scores.top.size() / scores.rows.size();
  const auto list = std::span(scores.top).subspan(row * top, top);
  front_ = Front{scores.rows[row], {list.begin(), list.end()}};
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
  keep_front(scores[0]);
  const std::vector<Candidate> all = candidates(scores[0]);
  const std::span<const Candidate> options(all.data(), decided_);
  const std::span<const Candidate> drafted = std::span(all).subspan(decided_);
  if (failed_) return *failed_;
  DenoiseStep step;
  step.window = window_;
  step.edits = std::exchange(merged_, {});
  WindowFeedback feedback{window_, {}, {}};
  const Position masks = canvas_.masked_count(window_);
  std::vector<Position> looked;
  for (const Candidate& candidate : options)
    if (canvas_.masked(candidate.position)) looked.push_back(candidate.position);

  apply(step, method_.decoder->decode(context(), options));
  // Where positions have moved, a draft's prediction is no longer that of its place.
  if (std::any_of(step.edits.begin(), step.edits.end(), [](const Edit& edit) { return shifts(edit.kind); })) {
    drafts_.forget(window_);
    front_.reset();
  }
  if (!drafts_.empty() && drafts_.acceptance() == DraftAcceptance::kRecheck)
    apply(step, drafts_.recheck(canvas_, options, feedback.drafts));
  if (!draining_ && masks > 0 && canvas_.masked_count(window_) >= masks && !method_.decoder->keeps_schedule() &&
      !force_progress(step, options))
    return not_a_number();
  for (Position p : looked) feedback.looks.push_back({p - window_.begin, !canvas_.masked(p)});
  drafts_.record(drafted, window_.end);
  if (!drafts_.empty() && drafts_.acceptance() == DraftAcceptance::kInstant && canvas_.masked_count(window_) == 0)
    if (const auto next = method_.window->next(canvas_))
      apply(step, drafts_.accept(canvas_, {window_.end, next->range.end}, feedback.drafts));
  method_.window->observe(feedback);
  keep_expectations(scores[0]);
  ++window_step_;
  ++counters_.steps;
  if (second_.due(counters_.steps) || (second_.busy() && ending())) DLLM_CHECK_OK(merge_second(step.edits));
  find_stop();
  return step;
}

/// Nothing is left to decode, but for what drains.
bool Denoiser::ending() const { return canvas_.masked_count() == 0 || (!options_.exact_length && stop_candidate()); }

/// For the masks that are still there, what the pass expects of them (IterSmooth).
void Denoiser::keep_expectations(const Scores& scores) {
  if (!soft_masks_.on() || scores.rows.empty()) return;
  const std::size_t top = scores.top.size() / scores.rows.size(), logits = scores.logits.size() / scores.rows.size();
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    if (score_of_wanted_[i] == kKept) continue;  // nothing new is known there
    const auto row = static_cast<std::size_t>(score_of_wanted_[i]);
    if (canvas_.masked(wanted_[i])) {
      soft_masks_.record(wanted_[i], scores.rows[row], std::span(scores.top).subspan(row * top, top),
                         std::span(scores.logits).subspan(row * logits, logits));
    } else {
      soft_masks_.forget(wanted_[i]);
    }
  }
  soft_masks_.end_pass();
}

void Denoiser::apply(DenoiseStep& step, std::span<const Edit> edits) {
  for (const Edit& edit : edits)
    if (canvas_.apply(edit)) step.edits.push_back(edit);
}

/// Commits the best masked candidate; false if there is none, which only predictions that are not numbers can cause.
bool Denoiser::force_progress(DenoiseStep& step, std::span<const Candidate> options) {
  const Candidate* best = nullptr;
  for (const Candidate& candidate : options)
    if (canvas_.masked(candidate.position) && candidate.token >= 0 && candidate.token != canvas_.mask() &&
        (!best || candidate.log_odds > best->log_odds))
      best = &candidate;
  if (!best) return false;
  step.edits.push_back(commit(*best));
  canvas_.apply(step.edits.back());
  step.forced = true;
  ++counters_.forced;
  return true;
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
