#include "engine/sequence.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "engine/canvas_method.h"
#include "engine/generate.h"
#include "engine/method.h"

namespace dllm {
namespace {

Expected<void> check_request(const ModelDesc& desc, const std::vector<TokenId>& prompt,
                             const GenerateOptions& options) {
  for (std::size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || prompt[i] >= desc.vocab)
      return Error{ErrorCode::kUsage, fmt::format("token id {} is outside the vocabulary of {}", prompt[i], desc.vocab),
                   fmt::format("prompt, position {}", i), ""};
  const std::int64_t total = static_cast<std::int64_t>(prompt.size()) + options.length;
  if (total > desc.context_length)
    return Error{ErrorCode::kUsage,
                 fmt::format("{} prompt tokens and {} to generate exceed the context of {}", prompt.size(),
                             options.length, desc.context_length),
                 "", "shorten the prompt or give a smaller --predict"};
  if (prompt.empty() && desc.logit_shift > 0 && !desc.mask)
    return Error{ErrorCode::kUsage, "an autoregressive model needs at least one prompt token", "", ""};
  return {};
}

}  // namespace

Expected<std::unique_ptr<Sequence>> Sequence::start(Backend& backend, const Tokenizer* tokenizer,
                                                    const std::vector<TokenId>& prompt, const GenerateOptions& resolved,
                                                    const LatencyTable* latency, PassRunner* second) {
  const ModelDesc& desc = backend.desc();
  DLLM_CHECK_OK(check_request(desc, prompt, resolved));
  std::unique_ptr<Sequence> sequence(new Sequence(tokenizer, prompt));
  Canvas canvas(prompt, resolved.length, desc.mask.value_or(-1));
  const Position capacity = desc.canvas.length == 0
                                ? canvas.size()
                                : Refiner::capacity(canvas.prompt_end(), resolved.length, desc.canvas.length);
  if (capacity > desc.context_length)
    return Error{
        ErrorCode::kUsage,
        fmt::format("the last canvas ends at position {}, beyond the context of {}", capacity, desc.context_length), "",
        "shorten the prompt or give a smaller --predict"};
  DLLM_TRY(sequence->cache_, backend.make_cache(capacity));
  if (resolved.cfg_scale != 0) {
    DLLM_TRY(sequence->unconditional_, backend.make_cache(canvas.size()));
  }
  const auto length = static_cast<std::size_t>(resolved.length);
  sequence->result_.commit_step.assign(length, -1);
  sequence->result_.confidence.assign(length, 0.0);
  if (desc.canvas.length > 0) {
    sequence->loop_ =
        std::make_unique<Refiner>(desc, std::move(canvas), refine_options(resolved, desc), *sequence->cache_);
    return sequence;
  }
  DLLM_TRY(Method method, make_method(resolved, desc, latency));
  DenoiseOptions denoise = denoise_options(resolved, desc, latency);
  if (second != nullptr) {
    DLLM_TRY(sequence->side_, backend.make_cache(canvas.size()));
    denoise.second.runner = second;
    denoise.second.cache = sequence->side_.get();
  }
  sequence->loop_ = std::make_unique<Denoiser>(desc, std::move(canvas), std::move(method), std::move(denoise),
                                               *sequence->cache_, sequence->unconditional_.get());
  return sequence;
}

std::span<const SequenceStep> Sequence::prepare() {
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
  return step;
}

/// What is recorded of positions moves with their tokens.
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

StepEvent Sequence::event(const DenoiseStep& step) const {
  const Canvas& canvas = this->canvas();
  const DenoiseCounters counters = in_loop([](const auto& loop) { return loop.counters(); });
  StepEvent event;
  event.step = counters.steps - 1;
  event.nfe = counters.nfe;
  event.block_begin = step.window.begin;
  event.block_end = step.window.end;
  event.prompt_length = canvas.prompt_end();
  event.masked = canvas.masked_count();
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
  event.text = text(in_loop([](const auto& loop) { return loop.settled(); }), /*complete=*/false);
  return event;
}

Generation Sequence::finish(bool cancelled, double seconds) {
  const Canvas& canvas = this->canvas();
  for (Position p = canvas.prompt_end(); p < canvas.size(); ++p) result_.ids.push_back(canvas.token(p));
  const Position end = answer_end();
  result_.text = text(end, /*complete=*/true);
  result_.finish = cancelled ? FinishReason::kCancelled : stop_position() ? FinishReason::kStop : FinishReason::kLength;
  result_.hash = hash_ids({result_.ids.begin(), result_.ids.begin() + (end - canvas.prompt_end())});
  const DenoiseCounters counters = in_loop([](const auto& loop) { return loop.counters(); });
  result_.stats = {.prompt_tokens = canvas.prompt_end(),
                   .answer_tokens = end - canvas.prompt_end(),
                   .committed_tokens = canvas.size() - canvas.prompt_end() - canvas.masked_count(),
                   .steps = counters.steps,
                   .nfe = counters.nfe,
                   .forced = counters.forced,
                   .second_passes = counters.second_passes,
                   .rows_forwarded = counters.rows_forwarded,
                   .rows_scored = counters.rows_scored,
                   .seconds = seconds};
  return std::move(result_);
}

const Canvas& Sequence::canvas() const {
  return std::visit([](const auto& loop) -> const Canvas& { return loop->canvas(); }, loop_);
}

std::optional<Position> Sequence::stop_position() const {
  return in_loop([](const auto& loop) { return loop.stop_position(); });
}

/// Behind the stop token, or behind the committed prefix.
Position Sequence::answer_end() const {
  const Canvas& canvas = this->canvas();
  if (const auto stop = stop_position()) return *stop + 1;
  return canvas.first_masked(canvas.prompt_end());
}

/// Text of the answer up to `end`, cut in front of the stop token. A UTF-8 character that `end` cuts apart is left
/// out, unless the answer is complete.
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

}  // namespace dllm
