#include "serve/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "base/try.h"
#include "engine/ends.h"
#include "engine/trace.h"

namespace dllm::serve {
namespace {

/// The answers to one request while they are being generated. Called from the scheduler's thread and, once, from the
/// submitting thread.
class AnswerJob : public std::enable_shared_from_this<AnswerJob> {
 public:
  AnswerJob(CallPtr call, AnswerRequest request, std::unique_ptr<AnswerFormat> format)
      : call_(std::move(call)),
        request_(std::move(request)),
        format_(std::move(format)),
        answers_(request_.prompts.size()),
        told_(request_.prompts.size()),
        stepped_(request_.prompts.size()) {}

  Expected<void> submit();

 private:
  ScheduledRequest scheduled(std::size_t choice);
  bool on_step(std::size_t choice, const StepEvent& event);
  void on_done(std::size_t choice, Expected<Generation> answer);
  void open();
  void write(const std::string& data) {
    if (!data.empty()) call_->exchange->write(data);
  }
  void tell(std::size_t choice, const std::string& final_text, bool complete);
  void tell_end(std::size_t choice, const Generation& answer);
  void fail(const Error& error);
  void finish();
  std::string canvas_text(const StepEvent& event) const;

  CallPtr call_;
  AnswerRequest request_;
  std::unique_ptr<AnswerFormat> format_;
  std::mutex mutex_;
  std::vector<std::optional<Generation>> answers_;
  std::vector<ShownAnswer> told_;  ///< of each, what was sent to the client
  std::vector<char> stepped_;      ///< a step of it was told
  std::vector<RequestId> ids_;
  std::size_t done_ = 0;
  std::optional<double> first_text_;
  bool opened_ = false, ended_ = false;
};

Expected<void> AnswerJob::submit() {
  if (call_->is_over()) return {};  // reading the request and compiling its structure took some time
  std::vector<ScheduledRequest> requests;
  for (std::size_t i = 0; i < request_.prompts.size(); ++i) requests.push_back(scheduled(i));
  DLLM_TRY(auto ids, call_->served().scheduler.submit(std::move(requests)));
  // The exchange holds this callback, so it must not hold the job.
  // If the model is unloaded, the call has ended.
  const bool leased = call_->lease != nullptr;
  const std::weak_ptr<void> lease = call_->lease;
  call_->exchange->on_abandoned(
      [&scheduler = call_->served().scheduler, ids, stop = call_->stop, leased, lease]() mutable {
        stop.request_stop();
        const std::shared_ptr<void> busy = lease.lock();
        if (leased && busy == nullptr) return;
        for (const RequestId id : ids) scheduler.cancel(id);
      });
  const std::lock_guard lock(mutex_);
  ids_ = std::move(ids);
  if (request_.stream && !ended_) open();
  return {};
}

ScheduledRequest AnswerJob::scheduled(std::size_t choice) {
  ScheduledRequest one;
  one.prompt = std::move(request_.prompts[choice]);
  one.options = request_.options[choice];
  one.suffix = request_.suffix;
  one.form = request_.form;
  one.shown = request_.shown;
  one.images = request_.images;
  one.preamble = request_.preamble;
  one.deadline = call_->start + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                    std::chrono::duration<double>(call_->api.options.request_seconds));
  one.stop = call_->stop.get_token();
  one.detail = request_.diffusing || request_.events ? StepDetail::kCanvas : StepDetail::kText;
  one.on_step = [self = shared_from_this(), choice](const StepEvent& event) { return self->on_step(choice, event); };
  one.on_done = [self = shared_from_this(), choice](Expected<Generation> answer) {
    self->on_done(choice, std::move(answer));
  };
  return one;
}

void AnswerJob::open() {
  if (std::exchange(opened_, true)) return;
  HttpResponse head{.type = std::string(format_->stream_type()), .headers = call_->answer_headers()};
  head.headers.emplace_back("Cache-Control", "no-store");
  call_->exchange->begin_stream(std::move(head), format_->keep_alive());
  write(format_->opening());
}

/// Sends the final text that the client does not have yet. Sent text is never taken back: if a text does not continue
/// what was sent, nothing is sent until it does.
void AnswerJob::tell(std::size_t choice, const std::string& final_text, bool complete) {
  ShownAnswer shown = format_->shown(final_text, complete);
  ShownAnswer& told = told_[choice];
  const auto grows = [](const std::string& now, const std::string& before) {
    return now.size() > before.size() && now.starts_with(before);
  };
  const bool sent = request_.stream && !request_.diffusing;
  if (grows(shown.thoughts, told.thoughts)) {
    if (!first_text_) first_text_ = call_->seconds();
    if (sent) write(format_->thought(choice, std::string_view(shown.thoughts).substr(told.thoughts.size())));
    told.thoughts = std::move(shown.thoughts);
  }
  if (!grows(shown.text, told.text)) return;
  if (!first_text_) first_text_ = call_->seconds();
  if (sent) write(format_->text(choice, std::string_view(shown.text).substr(told.text.size())));
  told.text = std::move(shown.text);
}

/// What completes the steps that a client has seen: the last snapshot, and all that a trace has of an answer.
void AnswerJob::tell_end(std::size_t choice, const Generation& answer) {
  Json facts = {{"nfe", answer.stats.nfe}, {"masked", 0}, {"final", true}};
  if (request_.events) {
    facts["options"] = options_json(answer.options);
    facts["result"] = trace_result(answer);
  }
  write(format_->step(choice, request_.diffusing ? answer.text : "", facts));
}

bool AnswerJob::on_step(std::size_t choice, const StepEvent& event) {
  const std::lock_guard lock(mutex_);
  if (ended_) return false;
  if (request_.stream) open();
  tell(choice, event.text, /*complete=*/false);
  if (!request_.stream || (!request_.diffusing && !request_.events)) return true;
  // Snapshots replace each other, so a slow reader gets fewer. Changes add up: it gets all of them or is disconnected.
  constexpr std::size_t kUnread = 64U << 10U;
  const bool snapshot = request_.diffusing && call_->exchange->backlog() < kUnread;
  if (!snapshot && !request_.events) return true;
  const bool first = std::exchange(stepped_[choice], 1) == 0;
  const Json facts = request_.events ? trace_step(call_->served().model, event, call_->seconds(), first)
                                     : Json{{"step", event.step}, {"nfe", event.nfe}, {"masked", event.masked}};
  write(format_->step(choice, snapshot ? canvas_text(event) : "", facts));
  return true;
}

void AnswerJob::on_done(std::size_t choice, Expected<Generation> answer) {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  if (!answer) return fail(answer.error());
  if (answer->finish == FinishReason::kCancelled)
    return fail({ErrorCode::kCancelled, "the request was cancelled", "", ""});
  call_->api.metrics.generated(call_->api.only != nullptr ? "" : call_->served().name(), *answer,
                               first_text_.value_or(call_->seconds()));
  if (request_.stream) {
    open();
    if (request_.diffusing || request_.events) tell_end(choice, *answer);
    tell(choice, answer->text, /*complete=*/true);
    write(format_->closing(choice, *answer));
  }
  answers_[choice] = *std::move(answer);
  if (++done_ == answers_.size()) finish();
}

void AnswerJob::fail(const Error& error) {
  ended_ = true;
  for (const RequestId id : ids_) call_->served().scheduler.cancel(id);
  if (!opened_) return call_->fail(error);
  const ApiError told = api_error(error);
  write(format_->error(told));
  call_->exchange->end();
  call_->log(told.status, {{"error", error.message()}});
}

void AnswerJob::finish() {
  ended_ = true;
  std::vector<Generation> all;
  Json facts = {{"prompt_tokens", 0}, {"answer_tokens", 0}, {"nfe", 0}, {"model_seconds", 0.0}};
  for (std::optional<Generation>& answer : answers_) {
    const GenerateStats& stats = answer->stats;
    facts["prompt_tokens"] = facts["prompt_tokens"].get<int>() + stats.prompt_tokens;
    facts["answer_tokens"] = facts["answer_tokens"].get<int>() + stats.answer_tokens;
    facts["nfe"] = facts["nfe"].get<int>() + stats.nfe;
    facts["model_seconds"] = facts["model_seconds"].get<double>() + stats.seconds;
    all.push_back(*std::move(answer));
  }
  if (!request_.stream) return call_->reply(HttpResponse{.body = dump(format_->whole(all))}, facts);
  write(format_->end(all));
  call_->exchange->end();
  call_->log(200, facts);
}

/// The answer's part of the canvas; a mask is a light shade (U+2591).
std::string AnswerJob::canvas_text(const StepEvent& event) const {
  std::string text;
  std::vector<std::int32_t> run;
  const auto flush = [&] {
    if (const auto piece = call_->served().model.detokenize(run, /*special=*/false)) text += *piece;
    run.clear();
  };
  for (std::size_t p = static_cast<std::size_t>(event.prompt_length); p < event.canvas.size(); ++p) {
    if (!event.canvas[p].masked) {
      run.push_back(event.canvas[p].token);
      continue;
    }
    flush();
    text += "\u2591";
  }
  flush();
  return text;
}

}  // namespace

Expected<void> answer(const CallPtr& call, AnswerRequest request, std::unique_ptr<AnswerFormat> format) {
  return std::make_shared<AnswerJob>(call, std::move(request), std::move(format))->submit();
}

Expected<AnswerRequest> read_stream_fields(Fields& fields) {
  AnswerRequest request;
  DLLM_TRY(request.stream, fields.flag("stream", false));
  DLLM_TRY(request.diffusing, fields.flag("diffusing", false));
  DLLM_TRY(request.events, fields.flag("diffusion_events", false));
  if (!request.stream && (request.diffusing || request.events))
    return Error{ErrorCode::kUsage, "steps can be seen in streams only",
                 request.diffusing ? "diffusing" : "diffusion_events", "give \"stream\": true"};
  return request;
}

Json log_probs_json(const LanguageModel& model, const Generation& answer, const std::vector<std::int32_t>& shown) {
  Json list = Json::array();
  for (const TokenLogProb& one : log_probs(model, answer, shown))
    list.push_back({{"token", one.text},
                    {"logprob", one.log_prob},
                    {"bytes", std::vector<std::uint8_t>(one.text.begin(), one.text.end())},
                    {"top_logprobs", Json::array()}});
  return list;
}

Expected<void> read_top_logprobs(Fields& fields) {
  DLLM_TRY(const auto top, fields.integer("top_logprobs", 0, 20));
  if (top.value_or(0) > 0)
    return Error{ErrorCode::kUsage, "only the chosen tokens' probabilities are known", "top_logprobs", "give 0"};
  return {};
}

Expected<void> read_shown(Fields& fields, const ServedModel& served, AnswerRequest& request) {
  DLLM_TRY(const bool skip, fields.flag("skip_special_tokens", true));
  if (!skip) request.shown = served.control_tokens();
  return {};
}

Expected<bool> read_usage_wish(Fields& fields, bool stream) {
  const Json* value = fields.find("stream_options");
  if (value == nullptr) return false;
  if (!stream) return Error{ErrorCode::kUsage, "it is for streams", "stream_options", "give \"stream\": true"};
  if (!value->is_object()) return wrong_type("stream_options", "an object");
  Fields inner(*value, fields.ignored(), "stream_options");
  DLLM_TRY(const bool usage, inner.flag("include_usage", false));
  for (const char* hint : {"include_obfuscation", "continuous_usage_stats"}) {
    DLLM_TRY(const bool wanted, inner.flag(hint, false));
    if (wanted) inner.ignore(hint);
  }
  DLLM_CHECK_OK(inner.done());
  return usage;
}

void add_choices(AnswerRequest& request, const std::vector<std::int32_t>& prompt, const GenerateOptions& options,
                 std::size_t choices) {
  for (std::size_t i = 0; i < choices; ++i) {
    request.prompts.push_back(prompt);
    request.options.push_back(options);
    if (i > 0) request.options.back().seed = options.seed.value_or(0) + i;
  }
}

std::string sse(const Json& data) { return "data: " + dump(data) + "\n\n"; }

std::string sse(std::string_view event, const Json& data) {
  return fmt::format("event: {}\ndata: {}\n\n", event, dump(data));
}

std::string new_id(std::string_view prefix, const Call& call) { return std::string(prefix) + call.id; }

Json usage_json(const std::vector<Generation>& answers, std::size_t shared) {
  std::int64_t prompt = 0, completion = 0, cached = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (i % shared == 0) {
      prompt += answers[i].stats.prompt_tokens;
      cached += answers[i].stats.cached_tokens;
    }
    completion += answers[i].stats.answer_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

Json facts_json(const Generation& answer) {
  Json json = {{"nfe", answer.stats.nfe},
               {"steps", answer.stats.steps},
               {"committed_tokens", answer.stats.committed_tokens},
               {"seconds", answer.stats.seconds},
               {"seed", answer.options.seed},
               {"algorithm", answer.options.decoder.name},
               {"hash", fmt::format("{:016x}", answer.hash)}};
  if (answer.slots.empty()) return json;
  json["slots"] = answer.slots;
  json["empty_slots"] = empty_slots(answer);
  return json;
}

std::vector<TokenLogProb> log_probs(const LanguageModel& model, const Generation& answer,
                                    const std::vector<std::int32_t>& shown) {
  std::vector<TokenLogProb> result;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(answer.stats.answer_tokens) && bytes < answer.text.size(); ++i) {
    const bool special = std::ranges::count(shown, answer.ids[i]) > 0;
    const auto text = model.detokenize({answer.ids[i]}, special);
    if (!text || text->empty()) continue;
    bytes += text->size();
    result.push_back({*text, std::max(std::log(answer.confidence[i]), -9999.0)});
  }
  return result;
}

}  // namespace dllm::serve
