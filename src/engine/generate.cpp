#include "engine/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/try.h"
#include "decode/denoiser.h"
#include "engine/method.h"

namespace dllm {
namespace {

/// Collects what the loop did into a Generation and into events.
class Recorder {
 public:
  Recorder(const Denoiser& denoiser, const Tokenizer* tokenizer, std::vector<TokenId> prompt)
      : denoiser_(denoiser), tokenizer_(tokenizer) {
    const Canvas& canvas = denoiser.canvas();
    result_.prompt_ids = std::move(prompt);
    result_.commit_step.assign(static_cast<std::size_t>(canvas.size() - canvas.prompt_end()), -1);
    result_.confidence.assign(result_.commit_step.size(), 0.0);
  }

  /// `pass`: index of the forward pass that decided (the first of a guided pair).
  void record(const DenoiseStep& step, std::int32_t pass) {
    for (const Edit& edit : step.edits) {
      const auto i = static_cast<std::size_t>(edit.position - denoiser_.canvas().prompt_end());
      result_.commit_step[i] = pass;
      result_.confidence[i] = edit.confidence;
    }
  }

  StepEvent event(const DenoiseStep& step) const {
    const Canvas& canvas = denoiser_.canvas();
    StepEvent event;
    event.step = denoiser_.counters().steps - 1;
    event.nfe = denoiser_.counters().nfe;
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
    for (const Edit& edit : step.edits) event.canvas[static_cast<std::size_t>(edit.position)].changed = true;
    event.text = text(denoiser_.settled(), /*complete=*/false);
    return event;
  }

  Generation finish(FinishReason reason, double seconds) {
    const Canvas& canvas = denoiser_.canvas();
    for (Position p = canvas.prompt_end(); p < canvas.size(); ++p) result_.ids.push_back(canvas.token(p));
    const Position end = answer_end();
    result_.text = text(end, /*complete=*/true);
    result_.finish = reason;
    result_.hash = hash_ids({result_.ids.begin(), result_.ids.begin() + (end - canvas.prompt_end())});
    const DenoiseCounters& counters = denoiser_.counters();
    result_.stats = {.prompt_tokens = canvas.prompt_end(),
                     .answer_tokens = end - canvas.prompt_end(),
                     .committed_tokens = canvas.size() - canvas.prompt_end() - canvas.masked_count(),
                     .steps = counters.steps,
                     .nfe = counters.nfe,
                     .forced = counters.forced,
                     .rows_forwarded = counters.rows_forwarded,
                     .rows_scored = counters.rows_scored,
                     .seconds = seconds};
    return std::move(result_);
  }

 private:
  /// Behind the stop token, or behind the committed prefix.
  Position answer_end() const {
    const Canvas& canvas = denoiser_.canvas();
    if (const auto stop = denoiser_.stop_position()) return *stop + 1;
    return canvas.first_masked(canvas.prompt_end());
  }

  /// Text of the answer up to `end`, cut in front of the stop token. A UTF-8 character that `end` cuts apart is left
  /// out, unless the answer is complete.
  std::string text(Position end, bool complete) const {
    if (!tokenizer_) return {};
    const Canvas& canvas = denoiser_.canvas();
    end = std::min(end, denoiser_.stop_position().value_or(end));
    StreamDecoder decoder(*tokenizer_, /*with_special=*/false);
    std::string result;
    for (Position p = canvas.prompt_end(); p < end; ++p) result += decoder.push(canvas.token(p));
    if (complete) result += decoder.flush();
    return result;
  }

  const Denoiser& denoiser_;
  const Tokenizer* tokenizer_;
  Generation result_;
};

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

std::uint64_t hash_ids(const std::vector<TokenId>& ids) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (TokenId id : ids)
    for (int shift = 0; shift < 32; shift += 8) {
      hash ^= (static_cast<std::uint32_t>(id) >> shift) & 0xffu;
      hash *= 0x100000001b3u;
    }
  return hash;
}

Expected<Generation> generate(Backend& backend, const Tokenizer* tokenizer, const std::vector<TokenId>& prompt,
                              const GenerateOptions& resolved, const StepCallback& on_step, std::stop_token stop) {
  const ModelDesc& desc = backend.desc();
  DLLM_CHECK_OK(check_request(desc, prompt, resolved));
  DLLM_TRY(Method method, make_method(resolved, desc));
  Canvas canvas(prompt, resolved.length, desc.mask.value_or(-1));
  DLLM_TRY(const auto cache, backend.make_cache(canvas.size()));
  std::unique_ptr<KvCache> unconditional;
  if (resolved.cfg_scale != 0) {
    DLLM_TRY(unconditional, backend.make_cache(canvas.size()));
  }
  Denoiser denoiser(desc, std::move(canvas), std::move(method), denoise_options(resolved, desc), *cache,
                    unconditional.get());
  Recorder recorder(denoiser, tokenizer, prompt);

  const auto start = std::chrono::steady_clock::now();
  FinishReason reason = FinishReason::kLength;
  for (;;) {
    if (stop.stop_requested()) {
      reason = FinishReason::kCancelled;
      break;
    }
    const std::int32_t pass = denoiser.counters().nfe;
    const auto batch = denoiser.prepare();
    if (batch.empty()) break;
    DLLM_TRY(const auto scores, backend.forward(batch));
    DLLM_TRY(const DenoiseStep step, denoiser.absorb(scores));
    recorder.record(step, pass);
    if (on_step && !on_step(recorder.event(step))) {
      reason = FinishReason::kCancelled;
      break;
    }
  }
  if (reason == FinishReason::kLength && denoiser.stop_position()) reason = FinishReason::kStop;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return recorder.finish(reason, seconds.count());
}

}  // namespace dllm
