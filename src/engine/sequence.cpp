#include "engine/sequence.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/to_size.h"
#include "base/try.h"
#include "engine/generate.h"

namespace dllm {
namespace {

/// Bytes at the end of `text` that may be the beginning of a stop text; they are not reported before the next step.
std::size_t unfinished_stop(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops)
    for (std::size_t size = std::min(stop.size() - 1, text.size()); size > longest; --size)
      if (text.ends_with(std::string_view(stop).substr(0, size))) longest = size;
  return longest;
}

}  // namespace

Expected<std::span<const SequenceStep>> Sequence::prepare() {
  for (;;) {
    if (stopped_ || is_cut()) return std::span<const SequenceStep>();
    pass_ = counters().nfe;
    const std::span<const SequenceStep> steps = in_loop([](auto& loop) { return loop.prepare(); });
    if (!steps.empty() || !goes_on()) return steps;
    DLLM_CHECK_OK(go_on());
  }
}

/// Whether the bound ends the answer before its canvas does.
bool Sequence::is_cut() const { return length_.most < size_ && settled() >= length_.most; }

Expected<DenoiseStep> Sequence::absorb(std::span<const Scores> scores) {
  DLLM_TRY(DenoiseStep step, in_loop([scores](auto& loop) { return loop.absorb(scores); }));
  for (const Edit& edit : step.edits) {
    const auto i = to_size(edit.position - begin_);
    if (shifts(edit.kind)) {
      move_record(edit);
      continue;
    }
    result_.commit_step[i] = pass_;
    result_.confidence[i] = edit.confidence;
  }
  if (step.record && !extended_)
    result_.passes.push_back(*std::move(step.record));
  else
    result_.passes.clear();  // of an answer that cannot be recorded
  if (!stop_texts_.empty())
    stopped_ = find_stop_text(in_loop([](const auto& loop) { return loop.settled(); })).has_value();
  return step;
}

/// The records of positions move with their tokens.
void Sequence::move_record(const Edit& edit) {
  const std::ptrdiff_t first = edit.position - begin_, last = edit.end - begin_;
  const auto move = [&](auto& values, auto none) {
    if (edit.kind == EditKind::kInsert) {
      std::move_backward(values.begin() + first, values.begin() + last - 1, values.begin() + last);
      values[to_size(first)] = none;
    } else {
      std::move(values.begin() + first + 1, values.begin() + last, values.begin() + first);
      values[to_size(last - 1)] = none;
    }
  };
  move(result_.commit_step, -1);
  move(result_.confidence, 0.0);
}

DenoiseCounters Sequence::counters() const {
  DenoiseCounters all = before_;
  all.add(in_loop([](const auto& loop) { return loop.counters(); }));
  return all;
}

Position Sequence::settled() const {
  return in_loop([](const auto& loop) { return loop.settled(); }) - begin_;
}

StepEvent Sequence::event(const DenoiseStep& step, bool with_canvas) const {
  const Canvas& canvas = this->canvas();
  const DenoiseCounters counters = this->counters();
  StepEvent event;
  event.step = counters.steps - 1;
  event.nfe = counters.nfe;
  event.block_begin = step.window.begin;
  event.block_end = step.window.end;
  event.prompt_length = begin_;
  event.masked = canvas.masked_count();
  if (with_canvas) show_canvas(step, event);

  const Position asked = begin_ + std::min(settled(), answer_size());
  event.text = text(asked, /*complete=*/false);
  if (const auto stop = find_stop_text(asked))
    event.text.resize(std::min(stop->at, event.text.size()));
  else
    event.text.resize(event.text.size() - unfinished_stop(event.text, stop_texts_));
  return event;
}

void Sequence::show_canvas(const DenoiseStep& step, StepEvent& event) const {
  const Canvas& canvas = this->canvas();
  std::vector<TokenId> tokens;
  for (Position p = 0; p < canvas.size(); ++p) tokens.push_back(canvas.token(p));
  if (images_ != nullptr) images_->show(tokens);
  event.canvas.resize(tokens.size());
  for (Position p = 0; p < canvas.size(); ++p) {
    CanvasCell& cell = event.canvas[to_size(p)];
    cell.token = tokens[to_size(p)];
    cell.masked = canvas.masked(p);
    cell.confidence = p < begin_ ? 1.0 : result_.confidence[to_size(p - begin_)];
  }
  for (const Edit& edit : step.edits)
    for (Position p = edit.position; p < (shifts(edit.kind) ? edit.end : edit.position + 1); ++p)
      event.canvas[to_size(p)].changed = true;
}

Generation Sequence::finish(bool cancelled, double seconds) {
  const Canvas& canvas = this->canvas();
  if (images_ != nullptr) images_->show(result_.prompt_ids);
  const Position length = answer_size(), asked = begin_ + length;
  for (Position p = begin_; p < asked; ++p) result_.ids.push_back(canvas.token(p));
  result_.commit_step.resize(to_size(length));
  result_.confidence.resize(to_size(length));
  Position end = answer_end();
  result_.text = text(end, /*complete=*/true);
  const auto stop_text = find_stop_text(end);
  if (stop_text) {
    end = stop_text->end;
    result_.text.resize(std::min(stop_text->at, result_.text.size()));
    result_.stop_text = *stop_text->text;
  }
  // A constrained answer is complete where its canvas ends, unless its text may go on or is cut.
  const bool complete = is_constrained(result_.options) && size_ == length_.language && length >= size_;
  const bool filled = (!form_.empty() || complete) && canvas.masked_count() == 0;
  const bool stops = filled || stop_text.has_value() || (stop_position() && *stop_position() < asked);
  if (!form_.empty()) result_.slots = slot_texts();
  result_.finish = stops && (!cancelled || stopped_ || filled) ? FinishReason::kStop
                   : cancelled                                 ? FinishReason::kCancelled
                                                               : FinishReason::kLength;
  result_.hash = hash_ids({result_.ids.begin(), result_.ids.begin() + (end - begin_)});
  const DenoiseCounters counters = this->counters();
  const auto given =
      static_cast<std::int32_t>(std::count_if(form_.begin(), form_.end(), [](TokenId id) { return id != -1; }));
  result_.stats = {.prompt_tokens = begin_,
                   .answer_tokens = end - begin_,
                   .committed_tokens = length - canvas.masked_count({begin_, asked}) - given,
                   .steps = counters.steps,
                   .nfe = counters.nfe,
                   .forced = counters.forced,
                   .second_passes = counters.second_passes,
                   .rounds = counters.rounds,
                   .round_tokens = counters.round_tokens,
                   .rows_forwarded = counters.rows_forwarded,
                   .rows_scored = counters.rows_scored,
                   .cached_tokens = cached_,
                   .seconds = seconds};
  return std::move(result_);
}

const Canvas& Sequence::canvas() const {
  return std::visit([](const auto& loop) -> const Canvas& { return loop->canvas(); }, loop_);
}

std::optional<Position> Sequence::stop_position() const {
  return earlier_stop_ ? earlier_stop_ : in_loop([](const auto& loop) { return loop.stop_position(); });
}

/// The end of the answer: after the stop token, or after the committed prefix.
Position Sequence::answer_end() const {
  const Canvas& canvas = this->canvas();
  const auto stop = stop_position();
  const Position end = stop ? *stop + 1 : canvas.first_masked(begin_);
  return std::min(end, begin_ + answer_size());
}

std::optional<Sequence::StopText> Sequence::find_stop_text(Position end) const {
  if (!host_.tokenizer || stop_texts_.empty()) return std::nullopt;
  end = std::min(end, stop_position().value_or(end));
  StreamDecoder decoder(*host_.tokenizer, /*with_special=*/false, shown_);
  std::string seen;
  for (Position p = begin_; p < end; ++p) {
    const std::size_t before = seen.size();
    seen += decoder.push(canvas().token(p));
    std::optional<StopText> first;
    for (const std::string& text : stop_texts_)
      if (const std::size_t at = seen.find(text, before - std::min(before, text.size() - 1));
          at != std::string::npos && (!first || at < first->at))
        first = StopText{at, p + 1, &text};
    if (first) return first;
  }
  return std::nullopt;
}

/// Text of the answer up to `end`, cut before the stop token. A UTF-8 character that `end` splits is left out, unless
/// the answer is complete.
std::string Sequence::text(Position end, bool complete) const {
  if (!host_.tokenizer) return {};
  const Canvas& canvas = this->canvas();
  end = std::min(end, stop_position().value_or(end));
  StreamDecoder decoder(*host_.tokenizer, /*with_special=*/false, shown_);
  std::string result;
  for (Position p = begin_; p < end; ++p) result += decoder.push(canvas.token(p));
  if (complete) result += decoder.flush();
  return result;
}

/// The text of each gap of the form; end-of-sequence tokens, which fill a gap that is too long, have none.
std::vector<std::string> Sequence::slot_texts() const {
  std::vector<std::string> texts;
  if (!host_.tokenizer) return texts;
  for (std::size_t i = 0; i < form_.size();) {
    std::vector<TokenId> ids;
    for (; i < form_.size() && form_[i] == -1; ++i) {
      const Position p = begin_ + static_cast<Position>(i);
      if (!canvas().masked(p)) ids.push_back(canvas().token(p));
    }
    if (i > 0 && form_[i - 1] == -1) texts.push_back(host_.tokenizer->decode(ids, /*with_special=*/false));
    while (i < form_.size() && form_[i] != -1) ++i;
  }
  return texts;
}

void append_steps(std::vector<SequenceStep>& batch, std::span<const SequenceStep> steps) {
  const std::size_t first = batch.size();
  batch.insert(batch.end(), steps.begin(), steps.end());
  for (std::size_t i = first; i < batch.size(); ++i)
    if (batch[i].guidance) batch[i].guidance->unconditional += static_cast<std::int32_t>(first);
}

}  // namespace dllm
