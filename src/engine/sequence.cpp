#include "engine/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/try.h"
#include "engine/generate.h"
#include "engine/method.h"
#include "engine/replay.h"

namespace dllm {
namespace {

Expected<void> check_ids(const ModelDesc& desc, const std::vector<TokenId>& ids, const char* what) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= desc.vocab)
      return Error{ErrorCode::kUsage, fmt::format("token id {} is outside the vocabulary of {}", ids[i], desc.vocab),
                   fmt::format("{}, position {}", what, i), ""};
  return {};
}

Expected<void> check_request(const ModelDesc& desc, const std::vector<TokenId>& prompt, const ResolvedOptions& options,
                             std::size_t suffix) {
  DLLM_CHECK_OK(check_ids(desc, prompt, "prompt"));
  const std::int64_t total = static_cast<std::int64_t>(prompt.size() + suffix) + options.length;
  const bool bounded = options.context < desc.context_length;
  if (const std::int64_t context = options.context; total > context)
    return Error{ErrorCode::kUsage,
                 fmt::format("{} prompt tokens and {} to generate exceed the context of {}", prompt.size() + suffix,
                             options.length, context),
                 bounded ? "--ctx-size" : "",
                 fmt::format("shorten the prompt or give a smaller --predict{}", bounded ? ", or a larger -c" : "")};
  if (prompt.empty() && ((desc.logit_shift > 0 && !desc.mask) || !desc.modes.empty()))
    return Error{ErrorCode::kUsage, "a model that predicts next tokens needs at least one prompt token", "", ""};
  return {};
}

/// Bytes at the end of `text` that may be the beginning of a stop text; they are not reported before the next step.
std::size_t unfinished_stop(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops)
    for (std::size_t size = std::min(stop.size() - 1, text.size()); size > longest; --size)
      if (text.ends_with(std::string_view(stop).substr(0, size))) longest = size;
  return longest;
}

/// Generated positions of the canvas. LLaDA2's generate() fills the last block of its grid, and the model sees the
/// extra masks: under --compat they exist too, and are cut off at the end.
Position filled_length(const ModelDesc& desc, std::size_t prompt, const ResolvedOptions& resolved) {
  if (!resolved.compat || !desc.mask || resolved.block_origin != "absolute") return resolved.length;
  const Position end = static_cast<Position>(prompt) + resolved.length, block = resolved.block_length;
  return resolved.length + (block - end % block) % block;
}

/// Positions of the canvas, or of all canvases that may be refined.
Position needed_capacity(const ModelDesc& desc, std::size_t prompt, const ResolvedOptions& resolved,
                         std::size_t suffix) {
  const auto end = static_cast<Position>(prompt);
  return desc.canvas.length == 0 ? end + filled_length(desc, prompt, resolved) + static_cast<Position>(suffix)
                                 : Refiner::capacity(end, resolved.length, desc.canvas.length);
}

/// What a form asks of the options. Its given tokens are checked as a suffix is.
Expected<void> check_form(const ResolvedOptions& resolved, const Given& given) {
  if (static_cast<std::size_t>(resolved.length) != given.form.size())
    return Error{
        ErrorCode::kUsage,
        fmt::format("the form has {} positions, and {} are to be generated", given.form.size(), resolved.length),
        "--predict", "the form says how many there are"};
  if (!given.suffix.empty()) return Error{ErrorCode::kUsage, "a form ends with its own text", "suffix", ""};
  if (std::count(given.form.begin(), given.form.end(), -1) == 0)
    return Error{ErrorCode::kUsage, "the form has nothing to fill", "form", ""};
  if (is_constrained(resolved)) return constraint_error(resolved, "a form says by itself how the answer looks");
  if (!resolved.stop.empty())
    return Error{ErrorCode::kUsage, "a form is filled to its end", "--stop", "leave the option out"};
  if (resolved.defer_eos)
    return Error{ErrorCode::kUsage, "no token ends a form", "--defer-eos", "leave the option out"};
  return {};
}

/// Whether text can be given: the model must see it, and the method must not change it.
Expected<void> check_given(const ModelDesc& desc, const ResolvedOptions& resolved, const Given& given) {
  std::vector<TokenId> suffix = given.suffix;
  if (!given.form.empty()) DLLM_CHECK_OK(check_form(resolved, given));
  std::copy_if(given.form.begin(), given.form.end(), std::back_inserter(suffix), [](TokenId id) { return id != -1; });
  DLLM_CHECK_OK(check_ids(desc, suffix, "given text"));
  if (!desc.mask || desc.causal_block > 0 || desc.canvas.length > 0 || !desc.modes.empty())
    return Error{ErrorCode::kUnsupported, "this model does not see text after its answer", "given text",
                 "models that fill masks and see in all directions do"};
  if (std::find(suffix.begin(), suffix.end(), *desc.mask) != suffix.end())
    return Error{ErrorCode::kUsage, "a given token is the mask", "given text", ""};
  DLLM_TRY(const Method method, make_method(resolved, desc));
  if (method.decoder->revises())
    return Error{ErrorCode::kUsage,
                 fmt::format("'{}' revises tokens, and those given may not change", resolved.decoder.name),
                 "--algorithm", "give one that does not"};
  if (resolved.suffix.name != "full")
    return Error{ErrorCode::kUsage, "the given text would be left out", "--suffix", "leave the option out"};
  if (resolved.compat)
    return Error{ErrorCode::kUsage, "no reference implementation has given text in its answer", "--compat",
                 "leave the option out"};
  return {};
}

/// What the loop of a model with several modes is made of.
struct ModeStart {
  const ModelDesc& desc;
  const ResolvedOptions& resolved;
  const LatencyTable* latency;
  const CommitSchedule* replay;
};

Expected<std::unique_ptr<ModeLoop>> start_mode(const ModeStart& start, Canvas canvas, Method method, KvCache& cache) {
  DLLM_TRY(ModeLoopOptions options, mode_options(start.resolved, start.desc, start.latency));
  if (start.replay != nullptr) {
    DLLM_CHECK_OK(check_replay(start.desc, start.resolved, *method.decoder, *start.replay));
    DLLM_CHECK_OK(check_mode_replay(options.mode, *start.replay));
    options.replay = *start.replay;
  }
  if (options.mode.mode != DecodingMode::kDiffusion) method.decoder.reset();
  return std::make_unique<ModeLoop>(start.desc, std::move(canvas), std::move(method.decoder), std::move(options),
                                    cache);
}

}  // namespace

Expected<void> Sequence::check(const ModelDesc& desc, const std::vector<TokenId>& prompt,
                               const ResolvedOptions& resolved, const Given& given) {
  DLLM_CHECK_OK(check_request(desc, prompt, resolved, given.suffix.size()));
  DLLM_CHECK_OK(check_constraint(resolved, desc));
  if (!given.suffix.empty() || !given.form.empty()) DLLM_CHECK_OK(check_given(desc, resolved, given));
  const Position capacity = needed_capacity(desc, prompt.size(), resolved, given.suffix.size());
  if (capacity <= desc.context_length) return {};
  return Error{
      ErrorCode::kUsage,
      fmt::format("the last canvas ends at position {}, beyond the context of {}", capacity, desc.context_length), "",
      "shorten the prompt or give a smaller --predict"};
}

Expected<std::unique_ptr<Sequence>> Sequence::start(Backend& backend, const Tokenizer* tokenizer,
                                                    const std::vector<TokenId>& prompt, const ResolvedOptions& resolved,
                                                    const LatencyTable* latency, PassRunner* second, const Given& given,
                                                    const CommitSchedule* replay) {
  const ModelDesc& desc = backend.desc();
  DLLM_CHECK_OK(check(desc, prompt, resolved, given));
  const std::vector<TokenId>& suffix = given.suffix;
  std::unique_ptr<Sequence> sequence(new Sequence(tokenizer, prompt));
  sequence->stop_texts_ = resolved.stop;
  sequence->length_ = resolved.length;
  const Position filled = filled_length(desc, prompt.size(), resolved);
  Canvas canvas(prompt, filled + static_cast<Position>(suffix.size()), desc.mask.value_or(-1));
  for (std::size_t i = 0; i < suffix.size(); ++i)
    canvas.apply({.position = canvas.prompt_end() + filled + static_cast<Position>(i), .token = suffix[i]});
  for (std::size_t i = 0; i < given.form.size(); ++i)
    if (given.form[i] != -1)
      canvas.apply({.position = canvas.prompt_end() + static_cast<Position>(i), .token = given.form[i]});
  sequence->form_ = given.form;
  DLLM_TRY(sequence->cache_, backend.make_cache(needed_capacity(desc, prompt.size(), resolved, suffix.size())));
  if (resolved.cfg_scale != 0) {
    DLLM_TRY(sequence->unconditional_, backend.make_cache(canvas.size()));
  }
  sequence->result_.options = resolved;
  const auto length = static_cast<std::size_t>(canvas.size() - canvas.prompt_end());
  sequence->result_.commit_step.assign(length, -1);
  sequence->result_.confidence.assign(length, 0.0);
  for (std::size_t i = 0; i < given.form.size(); ++i)
    if (given.form[i] != -1) sequence->result_.confidence[i] = 1.0;
  if (desc.canvas.length > 0) {
    if (replay != nullptr)
      return Error{ErrorCode::kUsage, "the model refines whole canvases", "--replay", "give a model that fills masks"};
    DLLM_TRY(RefineOptions refine, refine_options(resolved, desc));
    sequence->loop_ = std::make_unique<Refiner>(desc, std::move(canvas), std::move(refine), *sequence->cache_);
    return sequence;
  }
  DLLM_TRY(Method method, make_method(resolved, desc, latency));
  if (!desc.modes.empty()) {
    const ModeStart start{desc, resolved, latency, replay};
    DLLM_TRY(sequence->loop_, start_mode(start, std::move(canvas), std::move(method), *sequence->cache_));
    return sequence;
  }
  if (replay != nullptr) DLLM_CHECK_OK(begin_replay(desc, resolved, *replay, second != nullptr, method.decoder));
  DLLM_TRY(DenoiseOptions denoise, denoise_options(resolved, desc, latency));
  DLLM_TRY(denoise.constraint, constraint_config(resolved, given.constraint, replay != nullptr));
  // Text may be given after any token.
  if (!given.form.empty()) denoise.stop_ids.clear();
  if (const auto path = second_path_of(*method.decoder); path && second != nullptr) {
    denoise.second.delay = path->merge_delay;
    denoise.second.when_ready = path->refresh_merge == SecondPathOptions::Merge::kReady;
    DLLM_TRY(sequence->side_, backend.make_cache(canvas.size()));
    denoise.second.runner = second;
    denoise.second.cache = sequence->side_.get();
  }
  sequence->loop_ = std::make_unique<Denoiser>(desc, std::move(canvas), std::move(method), std::move(denoise),
                                               *sequence->cache_, sequence->unconditional_.get());
  return sequence;
}

std::span<const SequenceStep> Sequence::prepare() {
  if (stopped_) return {};
  pass_ = in_loop([](const auto& loop) { return loop.counters().nfe; });
  return in_loop([](auto& loop) { return loop.prepare(); });
}

Expected<DenoiseStep> Sequence::absorb(std::span<const Scores> scores) {
  DLLM_TRY(DenoiseStep step, in_loop([scores](auto& loop) { return loop.absorb(scores); }));
  for (const Edit& edit : step.edits) {
    const auto i = static_cast<std::size_t>(edit.position - canvas().prompt_end());
    if (shifts(edit.kind)) {
      move_record(edit);
      continue;
    }
    result_.commit_step[i] = pass_;
    result_.confidence[i] = edit.confidence;
  }
  if (step.record)
    result_.passes.push_back(*std::move(step.record));
  else
    result_.passes.clear();  // of an answer that cannot be recorded
  if (!stop_texts_.empty())
    stopped_ = find_stop_text(in_loop([](const auto& loop) { return loop.settled(); })).has_value();
  return step;
}

/// The records of positions move with their tokens.
void Sequence::move_record(const Edit& edit) {
  const Position prompt = canvas().prompt_end();
  const std::ptrdiff_t first = edit.position - prompt, last = edit.end - prompt;
  const auto move = [&](auto& values, auto none) {
    if (edit.kind == EditKind::kInsert) {
      std::move_backward(values.begin() + first, values.begin() + last - 1, values.begin() + last);
      values[static_cast<std::size_t>(first)] = none;
    } else {
      std::move(values.begin() + first + 1, values.begin() + last, values.begin() + first);
      values[static_cast<std::size_t>(last - 1)] = none;
    }
  };
  move(result_.commit_step, -1);
  move(result_.confidence, 0.0);
}

DenoiseCounters Sequence::counters() const {
  return in_loop([](const auto& loop) { return loop.counters(); });
}

Position Sequence::settled() const {
  return in_loop([](const auto& loop) { return loop.settled() - loop.canvas().prompt_end(); });
}

StepEvent Sequence::event(const DenoiseStep& step, bool with_canvas) const {
  const Canvas& canvas = this->canvas();
  const DenoiseCounters counters = this->counters();
  StepEvent event;
  event.step = counters.steps - 1;
  event.nfe = counters.nfe;
  event.block_begin = step.window.begin;
  event.block_end = step.window.end;
  event.prompt_length = canvas.prompt_end();
  event.masked = canvas.masked_count();
  if (with_canvas) show_canvas(step, event);

  const Position asked = canvas.prompt_end() + std::min(settled(), length_);
  event.text = text(asked, /*complete=*/false);
  if (const auto stop = find_stop_text(asked))
    event.text.resize(std::min(stop->at, event.text.size()));
  else
    event.text.resize(event.text.size() - unfinished_stop(event.text, stop_texts_));
  return event;
}

void Sequence::show_canvas(const DenoiseStep& step, StepEvent& event) const {
  const Canvas& canvas = this->canvas();
  event.canvas.resize(static_cast<std::size_t>(canvas.size()));
  for (Position p = 0; p < canvas.size(); ++p) {
    CanvasCell& cell = event.canvas[static_cast<std::size_t>(p)];
    cell.token = canvas.token(p);
    cell.masked = canvas.masked(p);
    cell.confidence =
        p < canvas.prompt_end() ? 1.0 : result_.confidence[static_cast<std::size_t>(p - canvas.prompt_end())];
  }
  for (const Edit& edit : step.edits)
    for (Position p = edit.position; p < (shifts(edit.kind) ? edit.end : edit.position + 1); ++p)
      event.canvas[static_cast<std::size_t>(p)].changed = true;
}

Generation Sequence::finish(bool cancelled, double seconds) {
  const Canvas& canvas = this->canvas();
  const Position asked = canvas.prompt_end() + length_;
  for (Position p = canvas.prompt_end(); p < asked; ++p) result_.ids.push_back(canvas.token(p));
  result_.commit_step.resize(static_cast<std::size_t>(length_));
  result_.confidence.resize(static_cast<std::size_t>(length_));
  Position end = answer_end();
  result_.text = text(end, /*complete=*/true);
  const auto stop_text = find_stop_text(end);
  if (stop_text) {
    end = stop_text->end;
    result_.text.resize(std::min(stop_text->at, result_.text.size()));
    result_.stop_text = *stop_text->text;
  }
  // A constrained answer is complete wherever it ends.
  const bool filled = (!form_.empty() || is_constrained(result_.options)) && canvas.masked_count() == 0;
  const bool stops = filled || stop_text.has_value() || (stop_position() && *stop_position() < asked);
  if (!form_.empty()) result_.slots = slot_texts();
  result_.finish = stops && (!cancelled || stopped_ || filled) ? FinishReason::kStop
                   : cancelled                                 ? FinishReason::kCancelled
                                                               : FinishReason::kLength;
  result_.hash = hash_ids({result_.ids.begin(), result_.ids.begin() + (end - canvas.prompt_end())});
  const DenoiseCounters counters = this->counters();
  const auto given =
      static_cast<std::int32_t>(std::count_if(form_.begin(), form_.end(), [](TokenId id) { return id != -1; }));
  result_.stats = {.prompt_tokens = canvas.prompt_end(),
                   .answer_tokens = end - canvas.prompt_end(),
                   .committed_tokens = length_ - canvas.masked_count({canvas.prompt_end(), asked}) - given,
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
  return in_loop([](const auto& loop) { return loop.stop_position(); });
}

/// The end of the answer: after the stop token, or after the committed prefix.
Position Sequence::answer_end() const {
  const Canvas& canvas = this->canvas();
  const auto stop = stop_position();
  const Position end = stop ? *stop + 1 : canvas.first_masked(canvas.prompt_end());
  return std::min(end, canvas.prompt_end() + length_);
}

std::optional<Sequence::StopText> Sequence::find_stop_text(Position end) const {
  if (!tokenizer_ || stop_texts_.empty()) return std::nullopt;
  end = std::min(end, stop_position().value_or(end));
  StreamDecoder decoder(*tokenizer_, /*with_special=*/false);
  std::string seen;
  for (Position p = canvas().prompt_end(); p < end; ++p) {
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
  if (!tokenizer_) return {};
  const Canvas& canvas = this->canvas();
  end = std::min(end, stop_position().value_or(end));
  StreamDecoder decoder(*tokenizer_, /*with_special=*/false);
  std::string result;
  for (Position p = canvas.prompt_end(); p < end; ++p) result += decoder.push(canvas.token(p));
  if (complete) result += decoder.flush();
  return result;
}

/// The text of each gap of the form; end-of-sequence tokens, which fill a gap that is too long, have none.
std::vector<std::string> Sequence::slot_texts() const {
  std::vector<std::string> texts;
  if (!tokenizer_) return texts;
  for (std::size_t i = 0; i < form_.size();) {
    std::vector<TokenId> ids;
    for (; i < form_.size() && form_[i] == -1; ++i) {
      const Position p = canvas().prompt_end() + static_cast<Position>(i);
      if (!canvas().masked(p)) ids.push_back(canvas().token(p));
    }
    if (i > 0 && form_[i - 1] == -1) texts.push_back(tokenizer_->decode(ids, /*with_special=*/false));
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
