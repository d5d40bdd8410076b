#include "decode/loop/slot_loop.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "backend/position_ranges.h"
#include "base/to_size.h"
#include "base/try.h"
#include "decode/loop/denoise_pass.h"

namespace dllm {

SlotLoop::SlotLoop(const ModelDesc& desc, Canvas canvas, ModeLoopOptions options, KvCache& cache)
    : desc_(desc),
      canvas_(std::move(canvas)),
      options_(std::move(options)),
      stop_rule_{options_.stop_ids, options_.exact_length},
      cache_(cache),
      next_block_(canvas_.prompt_end()) {
  assert(canvas_.prompt_end() > 0 && cache_.capacity() >= canvas_.size());
  unite(done_, {0, canvas_.prompt_end()});
}

void SlotLoop::begin_block() {
  const Position end = std::min(canvas_.size(), next_block_ + options_.block_length);
  const Position slot = options_.mode.slots.slot_length.value_or(desc_.slot_length);
  for (Position p = next_block_; p < end; p += slot) open_.push_back({p, std::min(end, p + slot)});
  next_block_ = end;
}

std::span<const SequenceStep> SlotLoop::prepare() {
  prepared_.clear();
  if (pass_ == Pass::kPropose) {
    if (open_.empty() && !ended_) begin_block();
    if (open_.empty()) return {};
  }
  prepared_.push_back({&cache_, plan(), request(), std::nullopt});
  SequenceStep& step = prepared_.front();
  for (const Slot& slot : chosen_)
    if (runs(slot) && pass_ != Pass::kFill) add_tokens(slot, step.plan, step.request);
  if (step.plan.scored.empty()) step.plan.scored.push_back(static_cast<std::int32_t>(step.plan.rows.size()) - 1);
  return prepared_;
}

/// Whether a chosen slot has rows in this pass: one that is right as a whole is read once more without a sight of the
/// others, and then its K and V stay.
bool SlotLoop::runs(const Slot& slot) const {
  return pass_ == Pass::kVerify || !slot.whole() || (pass_ == Pass::kJudge && from_ == 0);
}

/// Whether one of the tokens that stand, from this one on, ends the answer.
bool SlotLoop::stops(const Slot& slot, Position from) const {
  if (options_.exact_length) return false;
  for (Position i = from; i < slot.right; ++i)
    if (std::ranges::count(options_.stop_ids, slot.tokens[to_size(i)]) > 0) return true;
  return false;
}

/// What the rows see, and those that show masks; rows of tokens that are judged are added by add_tokens().
StepPlan SlotLoop::plan() const {
  StepPlan plan;
  plan.causal_block = 1;
  plan.lead = plan.visible = done_;
  const auto add = [&plan](Position p, TokenId token, bool scored) {
    if (scored) plan.scored.push_back(static_cast<std::int32_t>(plan.rows.size()));
    plan.rows.push_back({p, token});
  };
  if (pass_ == Pass::kPropose) {
    for (Position p = cache_.matching(canvas_.prompt()); p < canvas_.prompt_end(); ++p) add(p, canvas_.token(p), false);
    for (const PositionRange& slot : open_) {
      unite(plan.visible, slot);
      for (Position p = slot.begin; p < slot.end; ++p) add(p, canvas_.mask(), true);
    }
    return plan;
  }
  for (const Slot& slot : chosen_) {
    if (!runs(slot)) continue;
    unite(plan.visible, slot.range);
    if (pass_ != Pass::kVerify) plan.apart.push_back(slot.range);
    for (Position i = from_; pass_ == Pass::kFill && i < slot.range.size(); ++i) {
      const bool known = i < slot.right;
      add(slot.range.begin + i, known ? slot.tokens[to_size(i)] : canvas_.mask(), !known);
    }
  }
  return plan;
}

/// Rows of a slot's tokens, of which each is asked how likely the next one is, where that is not known.
void SlotLoop::add_tokens(const Slot& slot, StepPlan& plan, ScoreRequest& request) const {
  for (Position i = from_; i < slot.range.size(); ++i) {
    if (i + 1 < slot.range.size() && i + 1 > (pass_ == Pass::kVerify ? 0 : slot.right)) {
      request.queries.push_back({static_cast<std::int32_t>(plan.scored.size()), slot.tokens[to_size(i + 1)]});
      plan.scored.push_back(static_cast<std::int32_t>(plan.rows.size()));
    }
    plan.rows.push_back({slot.range.begin + i, slot.tokens[to_size(i)]});
  }
}

/// Only proposals are drawn: generate.py fills slots greedily, and probabilities are those at temperature 1.
ScoreRequest SlotLoop::request() const {
  ScoreRequest request(pass_ == Pass::kPropose ? options_.sampling : Sampling());
  request.adjustments.tokens = options_.biased;
  request.rng = options_.rng;
  request.step = static_cast<std::uint32_t>(counters_.steps);
  if (desc_.mask) request.rules = {{*desc_.mask, false, true}};
  if (options_.suppress_eos && desc_.eos) request.rules.push_back({*desc_.eos, false, false});
  return request;
}

Expected<DenoiseStep> SlotLoop::absorb(std::span<const Scores> scores) {
  counters_.nfe += 1;
  counters_.steps += 1;
  counters_.add_rows(prepared_.front().plan);
  DenoiseStep step;
  step.window = {open_.empty() ? chosen_.front().range.begin : open_.front().begin, next_block_};
  switch (pass_) {
    case Pass::kPropose:
      DLLM_CHECK_OK(propose(scores[0].rows));
      break;
    case Pass::kVerify:
      verify(scores[0], step);
      break;
    case Pass::kFill:
      DLLM_CHECK_OK(fill(scores[0].rows));
      break;
    case Pass::kJudge:
      judge(scores[0], step);
      break;
  }
  if (const auto stop = stop_rule_.decided(canvas_)) stop_ = stop;
  return step;
}

Expected<void> SlotLoop::propose(std::span<const RowScore> rows) {
  read_ = canvas_.prompt_end();
  std::vector<Slot> slots;
  auto row = rows.begin();
  for (const PositionRange& range : open_) {
    Slot& slot = slots.emplace_back();
    slot.range = range;
    for (Position i = 0; i < range.size(); ++i, ++row) {
      if (row->token < 0) return not_a_number(row->position, counters_.nfe);
      slot.tokens.push_back(row->token);
      slot.sure.push_back(row->confidence);
    }
  }
  const auto best = std::ranges::max_element(slots, {}, [](const Slot& slot) { return slot.sure.front(); });
  const double threshold = std::min(options_.mode.slots.slot_threshold, std::nextafter(best->sure.front(), 0.0));
  for (Slot& slot : slots)
    if (slot.sure.front() > threshold) chosen_.push_back(std::move(slot));
  forget_open();
  from_ = 0;
  pass_ = Pass::kVerify;
  return {};
}

/// K and V of what is not finished.
void SlotLoop::forget_open() {
  Position at = canvas_.prompt_end();
  for (const PositionRange& range : done_) {
    if (range.begin > at) cache_.invalidate({at, range.begin});
    at = std::max(at, range.end);
  }
  if (at < canvas_.size()) cache_.invalidate({at, canvas_.size()});
}

void SlotLoop::read_probabilities(const Scores& scores) {
  const ScoreRequest& request = prepared_.front().request;
  for (std::size_t q = 0; q < request.queries.size(); ++q) {
    const RowScore& row = scores.rows[to_size(request.queries[q].scored)];
    const Position place = row.position + 1;
    const auto slot = std::ranges::find_if(chosen_, [place](const Slot& one) { return one.range.contains(place); });
    slot->sure[to_size(place - slot->range.begin)] =
        row.confidence * std::exp(static_cast<double>(scores.queried[q]) - static_cast<double>(row.logit));
  }
}

void SlotLoop::extend_right(Slot& slot) const {
  const auto sure = [&] { return slot.sure[to_size(slot.right)] > options_.mode.slots.token_threshold; };
  while (!slot.whole() && sure()) ++slot.right;
}

/// Finishes a slot, with the K and V of this pass, up to its first stop token; whether it has one.
bool SlotLoop::keep(const Slot& slot, DenoiseStep& step) {
  const auto end = slot.tokens.end();
  const auto stop = options_.exact_length ? end : std::ranges::find_first_of(slot.tokens, options_.stop_ids);
  const bool ends = stop != end;
  const auto tokens = static_cast<Position>(stop - slot.tokens.begin()) + (ends ? 1 : 0);
  for (Position i = 0; i < tokens; ++i) {
    const Edit edit{slot.range.begin + i, slot.tokens[to_size(i)], EditKind::kCommit, slot.sure[to_size(i)]};
    if (canvas_.apply(edit)) step.edits.push_back(edit);
  }
  unite(done_, {slot.range.begin, slot.range.begin + tokens});
  std::erase(open_, slot.range);
  if (ends) end_behind(slot);
  return ends;
}

/// Nothing behind a slot with a stop token is part of the answer.
void SlotLoop::end_behind(const Slot& slot) {
  ended_ = true;
  std::erase_if(open_, [&slot](const PositionRange& range) { return range.begin > slot.range.begin; });
}

void SlotLoop::verify(const Scores& scores, DenoiseStep& step) {
  read_probabilities(scores);
  for (Slot& slot : chosen_) extend_right(slot);
  bool kept = false;  // slots from the first on that are right as a whole, or up to a stop token
  for (const Slot& slot : chosen_) {
    if (!slot.whole() && !stops(slot, 0)) break;
    kept = true;
    if (keep(slot, step)) break;
  }
  if (kept) {
    chosen_.clear();
    pass_ = Pass::kPropose;
  } else {
    for (const Slot& slot : chosen_) std::erase(open_, slot.range);
    pass_ = Pass::kFill;
  }
  forget_open();
}

Expected<void> SlotLoop::fill(std::span<const RowScore> rows) {
  auto row = rows.begin();
  for (Slot& slot : chosen_)
    for (Position i = slot.right; i < slot.range.size(); ++i, ++row) {
      if (row->token < 0) return not_a_number(row->position, counters_.nfe);
      slot.tokens[to_size(i)] = row->token;
      slot.sure[to_size(i)] = row->confidence;
    }
  pass_ = Pass::kJudge;
  return {};
}

void SlotLoop::judge(const Scores& scores, DenoiseStep& step) {
  read_probabilities(scores);
  for (Slot& slot : chosen_) {
    if (slot.whole()) continue;
    ++slot.right;  // its prediction from masks stands
    extend_right(slot);
  }
  const auto stopping = std::ranges::find_if(chosen_, [this](const Slot& slot) { return stops(slot, from_); });
  if (stopping != chosen_.end()) {
    stopping->right = stopping->range.size();
    end_behind(*stopping);
    chosen_.erase(stopping + 1, chosen_.end());
  }
  Position least = next_block_;
  for (const Slot& slot : chosen_)
    if (!slot.whole()) least = std::min(least, slot.right);
  pass_ = Pass::kFill;
  if (least < next_block_) {
    from_ = least - 1;  // the last token that is right is read once more, with the masks behind it
    return;
  }
  for (const Slot& slot : chosen_)
    if (keep(slot, step)) break;
  chosen_.clear();
  forget_open();
  pass_ = Pass::kPropose;
}

}  // namespace dllm
