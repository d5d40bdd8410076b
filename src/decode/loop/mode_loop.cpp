#include "decode/loop/mode_loop.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/to_size.h"
#include "base/try.h"
#include "decode/cache/kept_front.h"

namespace dllm {

ModeLoop::ModeLoop(const ModelDesc& desc, Canvas canvas, std::unique_ptr<Decoder> decoder, ModeLoopOptions options,
                   KvCache& cache)
    : desc_(desc),
      canvas_(std::move(canvas)),
      decoder_(std::move(decoder)),
      options_(std::move(options)),
      stop_rule_{options_.stop_ids, options_.exact_length},
      cache_(cache),
      window_(options_.mode.draft, options_.latency, desc_.drafted) {
  assert(canvas_.prompt_end() > 0 && cache_.capacity() >= canvas_.size());
  assert((decoder_ != nullptr) == (options_.mode.mode == DecodingMode::kDiffusion));
  if (options_.replay) replay_.emplace(*options_.replay, desc_);
}

bool ModeLoop::drafts_by_other() const {
  return desc_.drafted.block > 0 && options_.mode.mode == DecodingMode::kSelfSpeculation;
}

/// Whether a causal pass makes the next draft beside what it verifies.
bool ModeLoop::drafts_inside() const {
  return desc_.introspective && options_.mode.mode == DecodingMode::kSelfSpeculation;
}

bool ModeLoop::finished() const { return canvas_.masked_count() == 0 || (stop_ && !options_.exact_length); }

/// From the known token at read_ on. A round predicts one position beyond its block, a block of masks fills itself.
void ModeLoop::begin_block() {
  const Position rest = canvas_.size() - read_;
  Position rows = 1;
  if (options_.mode.mode == DecodingMode::kSelfSpeculation) rows = window_.next(rest - 1, read_ + 1);
  if (options_.mode.mode == DecodingMode::kDiffusion) rows = std::min(rest, options_.block_length);
  if (drafts_inside()) {
    const Position width = rows;
    rows = std::min(rest - 1, 1 + static_cast<Position>(made_.size()));
    masks_ = std::min(width - 1, rest - 1 - rows);
  }
  block_ = {read_, read_ + rows};
  draft_.assign(to_size(rows), canvas_.mask());
  draft_.front() = canvas_.token(read_);
  std::copy_n(made_.begin(), std::min(made_.size(), draft_.size() - 1), draft_.begin() + 1);
  block_step_ = 0;
  block_masks_ = canvas_.masked_count(block_);
}

/// Whether the block has positions to be predicted in place; fills pass_.
bool ModeLoop::wants_draft() {
  if (decoder_ == nullptr) {
    for (std::size_t i = 1; i < draft_.size(); ++i)
      if (draft_[i] == canvas_.mask()) pass_.wanted.push_back(block_.begin + static_cast<Position>(i));
    return !pass_.wanted.empty();
  }
  while (canvas_.masked_count(block_) > 0) {
    pass_.wanted = decoder_->wanted(context());
    if (!pass_.wanted.empty()) break;
    ++block_step_;  // the schedule decides nothing here: time passes, the model does not run
    ++counters_.steps;
  }
  if (pass_.wanted.empty()) return false;
  pass_.queries = decoder_->queries(context());
  return true;
}

/// Whether the decoder has drafts that the coming pass reads; fills checked_ and pass_.
bool ModeLoop::wants_check() {
  if (decoder_ == nullptr || canvas_.masked_count(block_) == 0) return false;
  checked_ = decoder_->drafts(context());
  if (checked_.empty()) return false;
  const Position first = checked_.front().position, end = checked_.back().position + 1;
  assert(first > block_.begin && end <= block_.end);
  for (Position p = first; p < end; ++p) {
    pass_.wanted.push_back(p);
    pass_.queries.push_back({p, checked_[to_size(p - first)].token});
  }
  if (end < canvas_.size() && canvas_.masked(end)) pass_.wanted.push_back(end);
  pass_.decided = pass_.wanted.size();
  for (std::size_t i = 0; i < pass_.wanted.size(); ++i) pass_.score_of_wanted.push_back(static_cast<std::int32_t>(i));
  return true;
}

DecodeContext ModeLoop::context() const {
  return {.canvas = canvas_,
          .window = block_,
          .window_step = block_step_,
          .window_masks_at_start = block_masks_,
          .step = static_cast<std::uint32_t>(counters_.steps),
          .rng = options_.rng,
          .latency = options_.latency,
          .request = prepared_.empty() ? nullptr : &prepared_.front().request};
}

std::span<const SequenceStep> ModeLoop::prepare() {
  prepared_.clear();
  pass_ = {};
  checked_.clear();
  if (finished()) return {};
  if (read_ >= canvas_.prompt_end() && block_.size() == 0) begin_block();
  drafting_ = false;
  if (block_.size() > 1 && wants_check()) {
    prepared_.push_back({&cache_, check_plan(), check_request(), std::nullopt});
    return prepared_;
  }
  drafting_ = block_.size() > 1 && wants_draft();
  if (drafting_) {
    pass_.decided = pass_.wanted.size();
    for (std::size_t i = 0; i < pass_.wanted.size(); ++i) pass_.score_of_wanted.push_back(static_cast<std::int32_t>(i));
    prepared_.push_back({&cache_, draft_plan(), draft_request(), std::nullopt});
  } else {
    prepared_.push_back({&cache_, causal_plan(), causal_request(), std::nullopt});
  }
  return prepared_;
}

/// The prompt, or the block as it was filled or drafted. What nobody will read is not predicted.
StepPlan ModeLoop::causal_plan() const {
  const bool prompt = read_ < canvas_.prompt_end();
  const PositionRange rows = prompt ? PositionRange{unread_prompt(), canvas_.prompt_end()} : block_;
  const bool verifies = !prompt && options_.mode.mode == DecodingMode::kSelfSpeculation;
  StepPlan plan;
  plan.region = Region::kContext;
  plan.causal_block = 1;
  const Position end = rows.end + (prompt ? 0 : masks_);
  plan.visible = {{0, end}};
  for (Position p = rows.begin; p < rows.end; ++p) {
    plan.rows.push_back({p, verifies ? draft_[to_size(p - rows.begin)] : canvas_.token(p)});
    if (verifies || p + 1 == rows.end) plan.scored.push_back(p - rows.begin);
  }
  for (Position p = rows.end; p < end; ++p) {
    plan.rows.push_back({p, canvas_.mask()});
    plan.scored.push_back(p - rows.begin);
  }
  return plan;
}

/// Rows that an earlier request has left are not computed again; the last one always is, as it predicts.
Position ModeLoop::unread_prompt() const {
  return std::min(cache_.matching(canvas_.prompt()), canvas_.prompt_end() - 1);
}

StepPlan ModeLoop::draft_plan() const {
  StepPlan plan;
  plan.region = drafts_by_other() ? Region::kDraft : Region::kCanvas;
  plan.visible = {{0, block_.end}};
  for (Position p = block_.begin; p < block_.end; ++p)
    plan.rows.push_back({p, decoder_ ? canvas_.token(p) : draft_[to_size(p - block_.begin)]});
  for (const Position p : pass_.wanted) plan.scored.push_back(p - block_.begin);
  return plan;
}

/// The block up to the last draft, as it would be if all were right.
StepPlan ModeLoop::check_plan() const {
  const Position first = checked_.front().position, end = checked_.back().position + 1;
  StepPlan plan;
  plan.region = Region::kContext;
  plan.causal_block = 1;
  plan.visible = {{0, end}};
  for (Position p = block_.begin; p < end; ++p)
    plan.rows.push_back({p, p < first ? canvas_.token(p) : checked_[to_size(p - first)].token});
  for (const Position p : pass_.wanted) plan.scored.push_back(p - 1 - block_.begin);
  return plan;
}

ScoreRequest ModeLoop::check_request() const {
  ScoreRequest request = causal_request();
  decoder_->configure(request);
  for (const TokenQuery& query : pass_.queries)
    request.queries.push_back({pass_.score_of(query.position), query.token});
  return request;
}

ScoreRequest ModeLoop::causal_request() const {
  ScoreRequest request(options_.sampling);
  request.adjustments.tokens = options_.biased;
  request.rng = options_.rng;
  request.hidden = drafts_by_other();
  if (desc_.autoregressive()) {
    // The draws of Denoiser, which decodes these models without a drafter: one pass for one token.
    request.steps_from = canvas_.prompt_end() - 1;
  } else {
    request.draw_ahead = 1;
  }
  // The mask token is no answer. It still counts in the softmax, so confidences stay the model's own.
  if (desc_.mask) request.rules = {{*desc_.mask, false, true}};
  if (options_.suppress_eos && desc_.eos) request.rules.push_back({*desc_.eos, false, false});
  return request;
}

ScoreRequest ModeLoop::draft_request() const {
  ScoreRequest request = causal_request();
  // The noise of the row in front, which predicts the same token.
  request.draw_ahead -= 1;
  if (request.steps_from) *request.steps_from += 1;
  if (decoder_ == nullptr) return request;
  request.step = static_cast<std::uint32_t>(counters_.steps);
  decoder_->configure(request);
  for (const TokenQuery& query : pass_.queries)
    request.queries.push_back({pass_.score_of(query.position), query.token});
  return request;
}

Expected<DenoiseStep> ModeLoop::absorb(std::span<const Scores> scores) {
  const StepPlan& plan = prepared_.front().plan;
  counters_.nfe += 1;
  counters_.add_rows(plan);
  DenoiseStep step;
  step.window = block_.size() > 0 ? block_ : PositionRange{canvas_.prompt_end(), canvas_.prompt_end() + 1};
  if (!checked_.empty())
    DLLM_CHECK_OK(read_check(scores[0], step));
  else if (!drafting_)
    DLLM_CHECK_OK(append(scores[0].rows, step));
  else if (decoder_ != nullptr)
    DLLM_CHECK_OK(decide(scores[0], step));
  else
    DLLM_CHECK_OK(draft(scores[0].rows));
  ++counters_.steps;
  if (const auto stop = stop_rule_.first(canvas_, settled())) stop_ = stop;
  return step;
}

/// Reads a causal pass: its first prediction holds, and each further one if the token that its row showed was right.
Expected<void> ModeLoop::append(std::span<const RowScore> rows, DenoiseStep& step) {
  const PositionRange range = block_.size() > 0 ? block_ : PositionRange{0, canvas_.prompt_end()};
  const bool verified = block_.size() > 1 && decoder_ == nullptr;
  Position accepted = 0;
  bool ended = false;
  for (const RowScore& row : rows) {
    const Position p = row.position + 1;
    if (row.token < 0) return not_a_number(p, counters_.nfe);
    const Position place = p - canvas_.prompt_end();
    const TokenId token = replay_ ? replay_->token_at(place, row.token) : row.token;
    const Edit edit{p, token, EditKind::kCommit, row.confidence};
    if (canvas_.apply(edit)) step.edits.push_back(edit);
    ++accepted;
    ended = !options_.exact_length && std::ranges::count(options_.stop_ids, token) > 0;
    const auto next = to_size(accepted);
    if (ended || !verified || next >= draft_.size()) break;
    if (replay_ ? replay_->pass_of(place + 1) != pass_index() : draft_[next] != token) break;
  }
  read_ = verified ? range.begin + accepted : range.end;
  const bool whole = accepted == block_.size() && !ended;
  make_drafts(whole ? rows.subspan(to_size(block_.size())) : std::span<const RowScore>());
  if (read_ < range.end + masks_) cache_.invalidate({read_, range.end + masks_});
  if (verified || masks_ > 0) counters_.rounds += 1, counters_.round_tokens += accepted;
  masks_ = 0;
  if (block_.size() > 0) window_.observe(block_.size(), accepted, ended);
  block_ = {read_, read_};
  return {};
}

/// The next draft, from the masks behind one that was right throughout; it ends in front of what is not sure enough.
void ModeLoop::make_drafts(std::span<const RowScore> masks) {
  made_.clear();
  for (const RowScore& row : masks) {
    if (row.token < 0 || row.confidence < options_.mode.draft.draft_cut) return;
    made_.push_back(row.token);
  }
}

/// Reads a pass over a draft: what is sure enough is kept, and the surest at least.
Expected<void> ModeLoop::draft(std::span<const RowScore> rows) {
  const double threshold = options_.mode.draft.draft_confidence;
  const RowScore* best = nullptr;
  for (const RowScore& row : rows) {
    if (row.token < 0) return not_a_number(row.position, counters_.nfe);
    if (best == nullptr || row.log_odds > best->log_odds) best = &row;
  }
  for (const RowScore& row : rows)
    if (&row == best || row.confidence >= threshold) draft_[to_size(row.position - block_.begin)] = row.token;
  cut(rows);
  return {};
}

/// Ends the draft in front of the first token that is not sure enough.
void ModeLoop::cut(std::span<const RowScore> rows) {
  const auto unsure = std::ranges::find_if(
      rows, [this](const RowScore& row) { return row.confidence < options_.mode.draft.draft_cut; });
  if (unsure == rows.end()) return;
  block_.end = unsure->position;
  draft_.resize(to_size(block_.size()));
}

/// The decoder's edits of a block of masks, and one commit at least.
Expected<void> ModeLoop::decide(const Scores& scores, DenoiseStep& step) {
  const std::vector<Candidate> candidates = candidates_of(pass_, scores, KeptFront(0));
  const Position masks = canvas_.masked_count(block_);
  for (const Edit& edit : replay_ ? replay_->edits(pass_index(), canvas_.prompt_end(), candidates)
                                  : decoder_->decode(context(), candidates))
    if (canvas_.apply(edit)) step.edits.push_back(edit);
  ++block_step_;
  if (canvas_.masked_count(block_) < masks || decoder_->keeps_schedule()) return {};
  if (!force_progress(candidates, canvas_, step, counters_)) return not_a_number(block_.begin, counters_.nfe);
  return {};
}

/// The decoder's commits after a causal pass over its drafts. What is finished now, the last of them excepted, is in
/// the cache as a causal pass left it; another block begins there, unless this one has tokens further on.
Expected<void> ModeLoop::read_check(const Scores& scores, DenoiseStep& step) {
  const std::vector<Candidate> candidates = candidates_of(pass_, scores, KeptFront(0));
  for (const Edit& edit : decoder_->checked(context(), candidates))
    if (canvas_.apply(edit)) step.edits.push_back(edit);
  ++block_step_;
  if (step.edits.empty() && !force_progress(candidates, canvas_, step, counters_))
    return not_a_number(block_.begin, counters_.nfe);
  counters_.rounds += 1;
  counters_.round_tokens += static_cast<std::int32_t>(step.edits.size());
  const Position first = checked_.front().position, end = first + static_cast<Position>(checked_.size());
  Position right = first;  // rows from here on were read with a token that does not stand
  while (right < end && canvas_.token(right) == checked_[to_size(right - first)].token) ++right;
  read_ = std::min(canvas_.first_masked(block_.begin) - 1, right);
  if (read_ < end) cache_.invalidate({read_, end});
  const bool more = read_ < block_.end && canvas_.masked_count({read_ + 1, block_.end}) < block_.end - read_ - 1;
  block_ = {read_, more ? block_.end : read_};
  block_masks_ = canvas_.masked_count(block_);
  return {};
}

}  // namespace dllm
