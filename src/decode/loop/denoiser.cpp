#include "decode/loop/denoiser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "backend/lead.h"
#include "base/to_size.h"
#include "base/try.h"
#include "decode/decoder/reviser.h"
#include "decode/loop/shadow_rows.h"

namespace dllm {
namespace {

UnrollingCache* unrolling(KvCache& cache) {
  auto* const found = dynamic_cast<UnrollingCache*>(&cache);
  return found != nullptr && found->most_passes() > 1 ? found : nullptr;
}

std::vector<TokenRule> token_rules(const ModelDesc& desc, const DenoiseOptions& options) {
  std::vector<TokenRule> rules;
  // The mask token is not an answer. It still counts in the softmax, so confidences remain the model's own.
  if (desc.mask && !options.compat) rules.push_back({*desc.mask, false, true});
  if (options.suppress_eos && desc.eos) rules.push_back({*desc.eos, false, false});
  if (!options.defer_eos) return rules;
  for (const TokenId id : options.stop_ids) {
    // Upstream's flag works through a shared buffer: at temperature > 0 it misses the end-of-text token.
    if (options.compat && options.sampling.temperature > 0 && desc.eos == id) continue;
    if (options.suppress_eos && desc.eos == id) continue;
    rules.push_back({id, true, false});
  }
  return rules;
}

}  // namespace

Denoiser::Denoiser(const ModelDesc& desc, Canvas canvas, Method method, DenoiseOptions options, KvCache& cache,
                   KvCache* unconditional)
    : desc_(desc),
      options_(std::move(options)),
      stop_rule_{options_.stop_ids, options_.exact_length},
      rules_(token_rules(desc, options_)),
      canvas_(std::move(canvas)),
      cache_(cache),
      unconditional_(unconditional),
      unrolling_(unrolling(cache)),
      decoder_(std::move(method.decoder)),
      cursor_(std::move(method.window)),
      planner_(desc, std::move(method.cache), options_),
      front_(keeps_front() ? desc.logit_shift : 0),
      drafts_(cursor_.drafts(), decoder_->replays()),
      soft_masks_(options_.smooth),
      guide_(options_.constraint),
      refresh_(options_.second, rules_),
      growth_(options_.suffix, canvas_, options_.stop_ids),
      recorder_(decoder_->revises() || drafts_.acceptance() == DraftAcceptance::kInstant, options_.stop_ids),
      history_(canvas_),
      guesses_(options_.branches) {
  assert(cache_.capacity() >= canvas_.size());
  assert((options_.cfg_scale != 0) == (unconditional_ != nullptr));
}

/// A constraint and some decoders need the logits of every pass, and penalties change them.
bool Denoiser::keeps_front() const {
  ScoreRequest asked(options_.sampling);
  decoder_->configure(asked);
  return planner_.keeps_front() && !asked.logits && !options_.constraint.automaton && !options_.penalties.penalizes();
}

DecodeContext Denoiser::context() const {
  return {canvas_,
          cursor_.range(),
          cursor_.step(),
          cursor_.masks_at_start(),
          static_cast<std::uint32_t>(counters_.steps),
          options_.rng,
          options_.latency,
          soft_masks_.least_threshold(),
          variants_,
          shadows_,
          &cache_,
          request_};
}

Position Denoiser::settled() const {
  const Position open = canvas_.first_masked(canvas_.prompt_end());
  if (!decoder_->revises()) return open;
  Position revisable = canvas_.size();
  if (const Reviser* reviser = decoder_->reviser()) {
    revisable = reviser->first_revisable(context());
  } else if (cursor_.begun()) {
    revisable = decoder_->revisable_from(context(), !window_finished());
  }
  return std::min(open, std::max(canvas_.prompt_end(), revisable));
}

bool Denoiser::window_finished() const { return canvas_.masked_count(cursor_.range()) == 0 && !window_held(); }

bool Denoiser::window_held() const {
  return cursor_.begun() && canvas_.masked_count(cursor_.range()) == 0 && decoder_->holds_window(context());
}

bool Denoiser::advance_window() {
  if (stop_ && !options_.exact_length) return false;
  if (window_held()) {
    cursor_.drop_drafts();
    return true;
  }
  const PositionRange before = cursor_.range();
  if (!cursor_.advance(canvas_)) return false;
  if (cursor_.range() != before) front_.forget();
  return true;
}

/// Whether the answer has no mask left and the decoder wants another review; pass_.wanted is then that review.
bool Denoiser::drain() {
  Reviser* reviser = decoder_->reviser();
  if (reviser == nullptr || (stop_ && !options_.exact_length) || !cursor_.begun()) return false;
  const auto stop = options_.exact_length ? std::nullopt : stop_rule_.decided(canvas_);
  if (!stop && canvas_.masked_count() > 0) return false;
  pass_.wanted = reviser->drain(context(), stop ? *stop + 1 : canvas_.size());
  if (pass_.wanted.empty()) {
    stop_ = stop_rule_.decided(canvas_);  // the answer is accepted
    return false;
  }
  cursor_.drop_drafts();
  if (reviser->drains_fully()) cursor_.begin_unit();
  return true;
}

/// Adds the positions after the window that the window wants drafted. Nothing after a stop token will be part of the
/// answer.
void Denoiser::add_drafts() {
  std::vector<Position> drafts;
  if (options_.exact_length || !stop_rule_.first(canvas_, cursor_.range().end))
    drafts = Drafts::positions(canvas_, cursor_.range().end, cursor_.ahead());
  if (drafts.empty()) cursor_.drop_drafts();
  pass_.wanted.insert(pass_.wanted.end(), drafts.begin(), drafts.end());
}

void Denoiser::prepare_pass() {
  prepared_.clear();
  pass_ = {};
  shadows_.clear();
  variant_passes_.clear();
  if (growth_.measures()) {
    pass_.wanted = growth_.wanted(canvas_, canvas_.prompt_end());
    return send({canvas_.prompt_end(), growth_.end()});
  }
  if (send_idle()) return;
  pass_.draining = drain();
  if (!pass_.draining) {
    while (advance_window()) {
      if (send_check()) return;
      pass_.wanted = decoder_->wanted(context());
      if (!pass_.wanted.empty()) break;
      cursor_.end_step();  // this step of the schedule decides nothing: it counts, but the model does not run
      ++counters_.steps;
    }
  }
  if (pass_.wanted.empty()) return;
  pass_.decided = pass_.wanted.size();
  if (!pass_.draining) {
    if (Reviser* reviser = decoder_->reviser()) {
      const Position end = planner_.horizon(canvas_, std::max(cursor_.range().end, cursor_.ahead()), growth_.end());
      refresh_.launch(context(), *reviser, planner_, end, canvas_, cache_, counters_);
    }
    add_drafts();
  }
  want_end();
  pass_.queries = decoder_->queries(context());
  pass_.shadowed = decoder_->shadowed(context());
  return send(cursor_.range());
}

/// dInfer's loop forwards a window right after the full pass that fills the cache, even if that pass decided all of it.
/// IterSmooth counts such a pass and learns from its masks, which are those after the window.
bool Denoiser::send_idle() {
  if (!std::exchange(owes_idle_, false) || (stop_ && !options_.exact_length)) return false;
  pass_.idle = true;
  send(cursor_.range());
  if (!prepared_[0].plan.scored.empty()) return true;
  soft_masks_.end_pass();
  prepared_.clear();
  pass_ = {};
  return false;
}

/// Where the answer seems to end, which no decoder asks.
void Denoiser::want_end() {
  growth_.reach(cursor_.range().end);
  const auto after = growth_.wanted(canvas_, cursor_.range().end);
  pass_.wanted.insert(pass_.wanted.end(), after.begin(), after.end());
}

void Denoiser::send(PositionRange window) {
  const bool first_of_unit = cursor_.unit_changed();
  StepPlan step = plan(window);
  if (unrolling_ != nullptr) unrolling_->expect(commit_rule(first_of_unit));
  ScoreRequest wanted = request(canvas_, pass_, step.scored.size(), counters_.steps);
  prepared_.push_back({&cache_, std::move(step), std::move(wanted), std::nullopt});
  if (unconditional_) {
    SequenceStep unconditional{unconditional_, prepared_[0].plan, prepared_[0].request, std::nullopt};
    for (PlanRow& row : unconditional.plan.rows)
      if (row.position < canvas_.answer_begin()) row.token = canvas_.mask();
    for (ShadowRow& shadow : unconditional.plan.shadows)
      if (shadow.row.position < canvas_.answer_begin()) shadow.row.token = canvas_.mask();
    lead_decided(desc_, *unconditional_, unconditional.plan);
    prepared_[0].guidance = Guidance{1, options_.cfg_scale};
    prepared_.push_back(std::move(unconditional));
  }
}

StepPlan Denoiser::plan(PositionRange window) {
  const bool fresh = cursor_.unit_changed() || growth_.measures();
  const bool spare_front = front_.spares_row(pass_, window, fresh);
  StepPlan plan = planner_.plan({canvas_, cache_, window, cursor_.ahead(), growth_.end(), fresh, spare_front,
                                 history_.predicted(), history_.ages()},
                                pass_);
  cursor_.end_plan();
  drafts_.show_in(plan, canvas_, window.end);
  if (const Reviser* reviser = decoder_->reviser()) {
    const auto asked = pass_.asked();
    for (PlanRow& row : plan.rows)
      if (std::binary_search(asked.begin(), asked.end(), row.position))
        row.token = reviser->shown(row.position).value_or(row.token);
  }
  soft_masks_.mix_into(plan, canvas_);
  add_soft_tokens(plan);
  add_shadows(canvas_, desc_.logit_shift, pass_, plan);
  lead_decided(desc_, cache_, plan);
  return plan;
}

ScoreRequest Denoiser::request(const Canvas& canvas, const DenoisePass& pass, std::size_t scored, std::int32_t step) {
  ScoreRequest request(options_.sampling);
  request.rng = options_.rng;
  request.step = static_cast<std::uint32_t>(step);
  request.rules = rules_;
  request.adjustments = adjustments(options_.penalties, canvas, pass, scored);
  if (without_mask_) request.rules.push_back({*desc_.mask, false, true});
  decoder_->configure(request);
  soft_masks_.configure(request);
  guide_.configure(request);
  for (const TokenQuery& query : pass.queries) request.queries.push_back({pass.score_of(query.position), query.token});
  query_shadows(canvas, pass, request);
  return request;
}

Expected<DenoiseStep> Denoiser::absorb_one(std::span<const Scores> scores) {
  request_ = &prepared_.front().request;
  for (const RowMixture& mixture : prepared_.front().plan.mixtures) {
    const Position p = prepared_.front().plan.rows[to_size(mixture.row)].position;
    if (mixture.instead) cache_.invalidate({p, p + 1});  // no other row may see what only this pass read
  }
  Expected<DenoiseStep> step = pass_.checks ? absorb_check(scores) : absorb_pass(scores);
  request_ = nullptr;
  shadows_.clear();  // they borrow from the scores
  variants_.clear();
  history_.end_pass(canvas_);
  return step;
}

Expected<DenoiseStep> Denoiser::absorb_pass(std::span<const Scores> scores) {
  if (growth_.measures()) {
    std::vector<Candidate> answer = candidates_of(pass_, scores[0], front_);
    DLLM_CHECK_OK(guide_.apply(canvas_, pass_, scores[0], answer));
    history_.predict(answer);
    return absorb_measure(answer);
  }
  if (pass_.idle) return absorb_idle(scores[0]);
  front_.keep(pass_, cursor_.range(), scores[0]);
  std::vector<Candidate> all = candidates_of(pass_, scores[0], front_);
  DLLM_CHECK_OK(guide_.apply(canvas_, pass_, scores[0], all));
  history_.predict(all);
  shadows_ = shadows_of(pass_, scores[0]);
  const auto drafted = std::span(all).subspan(pass_.decided);
  const PositionRange window = cut_window(all);
  const auto candidates = std::span(all).first(pass_.decided);
  DenoiseStep step;
  step.window = window;
  recorder_.begin(canvas_, pass_, window);
  recorder_.refresh(refresh_.take_launched());
  DLLM_TRY(step.edits, refresh_.take_early());
  recorder_.merge(step.edits);
  const std::size_t early = step.edits.size();
  WindowFeedback feedback{window, {}, {}};
  DLLM_CHECK_OK(decide(candidates, feedback, step));
  if (growth_.on())
    grow(all, step);
  else
    drafts_.record(drafted, window.end);
  if (!drafts_.empty() && drafts_.acceptance() == DraftAcceptance::kInstant && canvas_.masked_count(window) == 0)
    if (const auto next = cursor_.next(canvas_))
      apply(drafts_.accept(canvas_, {window.end, next->end}, feedback.drafts), step);
  recorder_.change(std::span(step.edits).subspan(early));
  cursor_.observe(feedback);
  soft_masks_.learn(pass_, canvas_, scores[0]);
  owes_idle_ =
      options_.compat && soft_masks_.on() && pass_.fills && canvas_.masked_count(window) == 0 && !decoder_->revises();
  cursor_.end_step();
  ++counters_.steps;
  const bool ending =
      canvas_.masked_count() == 0 || (!options_.exact_length && stop_rule_.decided(canvas_).has_value());
  if (refresh_.due(counters_.steps, ending)) {
    DLLM_TRY(const auto merged, refresh_.merge(context(), *decoder_->reviser(), canvas_, cache_, counters_));
    step.edits.insert(step.edits.end(), merged.begin(), merged.end());
    recorder_.merge(merged);
  }
  // A finished window's tokens count as final here: later edits from the next window do not keep the answer open.
  const bool finished = decoder_->reviser() == nullptr && window_finished();
  const Position end = finished ? canvas_.first_masked(canvas_.prompt_end()) : settled();
  if (const auto stop = stop_rule_.first(canvas_, end)) stop_ = stop;
  step.record = recorder_.end(settled());
  return step;
}

/// The window, which its first pass may cut: what is after it was predicted for that only.
PositionRange Denoiser::cut_window(std::span<const Candidate> all) {
  if (pass_.draining) return cursor_.range();
  cursor_.cut(canvas_, all.first(pass_.decided));
  while (pass_.decided > 0 && all[pass_.decided - 1].position >= cursor_.range().end) --pass_.decided;
  return cursor_.range();
}

/// A pass that only measures where the answer ends.
DenoiseStep Denoiser::absorb_measure(std::span<const Candidate> answer) {
  DenoiseStep step;
  step.window = {canvas_.prompt_end(), growth_.end()};
  growth_.measure(canvas_, answer);
  ++counters_.steps;
  return step;
}

DenoiseStep Denoiser::absorb_idle(const Scores& scores) {
  DenoiseStep step;
  step.window = cursor_.range();
  history_.predict({});
  decoder_->skip_pass();
  soft_masks_.learn(pass_, canvas_, scores);
  ++counters_.steps;
  return step;
}

void Denoiser::grow(std::span<const Candidate> all, DenoiseStep& step) {
  const std::vector<Edit> edits = growth_.insert(canvas_, all, pass_.decided);
  if (edits.empty()) return;
  apply(edits, step);
  front_.forget();
  cursor_.begin_unit();
}

/// The decoder's edits, commits of drafts that it predicts again, and at least one commit.
Expected<void> Denoiser::decide(std::span<const Candidate> candidates, WindowFeedback& feedback, DenoiseStep& step) {
  const PositionRange window = cursor_.range();
  const Position masks = canvas_.masked_count(window);
  std::vector<Position> looked;
  for (const Candidate& candidate : candidates)
    if (canvas_.masked(candidate.position)) looked.push_back(candidate.position);

  apply(guide_.keep(canvas_, decoder_->decode(context(), candidates)), step);
  // Where positions have moved, a draft's prediction no longer belongs to its place.
  if (std::any_of(step.edits.begin(), step.edits.end(), [](const Edit& edit) { return shifts(edit.kind); })) {
    drafts_.forget(window);
    front_.forget();
  }
  if (!drafts_.empty() && drafts_.acceptance() == DraftAcceptance::kRecheck)
    apply(drafts_.recheck(canvas_, candidates, feedback.drafts), step);
  const bool stuck = !pass_.draining && masks > 0 && canvas_.masked_count(window) >= masks;
  const bool failed = stuck && !decoder_->keeps_schedule() && !force_progress(candidates, canvas_, step, counters_);
  // Under --compat, every prediction may have been a mask: the next pass reports the best other tokens.
  if (failed && (without_mask_ || !predicts_masks(candidates))) return not_a_number();
  without_mask_ = failed;
  for (const Position p : looked) feedback.looks.push_back({p - window.begin, !canvas_.masked(p)});
  return {};
}

void Denoiser::apply(std::span<const Edit> edits, DenoiseStep& step) {
  for (const Edit& edit : edits)
    if (canvas_.apply(edit)) step.edits.push_back(edit);
}

bool Denoiser::predicts_masks(std::span<const Candidate> candidates) const {
  return std::any_of(candidates.begin(), candidates.end(), [this](const Candidate& candidate) {
    return canvas_.masked(candidate.position) && candidate.token == canvas_.mask();
  });
}

Error Denoiser::not_a_number() const {
  const PositionRange window = cursor_.range();
  return {ErrorCode::kInvalidFile,
          fmt::format("the model's predictions for positions {} to {} are not numbers", window.begin, window.end - 1),
          fmt::format("step {}", counters_.steps), "the weights are damaged, or were quantized from damaged ones"};
}

}  // namespace dllm
