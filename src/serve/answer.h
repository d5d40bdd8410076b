#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api.h"

namespace dllm::serve {

/// What of an answer may be sent.
struct ShownAnswer {
  std::string thoughts, text;
};

/// How an API formats answers. One object per request; calls do not overlap.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  /// The whole answer at once.
  virtual Json whole(const std::vector<Generation>& answers) = 0;

  /// How much of an answer's final text may be sent; `complete`: no more text will follow.
  virtual ShownAnswer shown(const std::string& text, bool complete) {
    (void)complete;
    return {"", text};
  }

  virtual std::string_view stream_type() const { return "text/event-stream"; }

  // Parts of a stream, server-sent events unless stream_type() is another; empty where an API has no such event.
  virtual std::string opening() { return ""; }
  /// The next piece of the thoughts of answer `choice`, which come before its text.
  virtual std::string thought(std::size_t choice, std::string_view more) {
    (void)choice, (void)more;
    return "";
  }
  /// The next piece of final text of answer `choice`.
  virtual std::string text(std::size_t choice, std::string_view more) = 0;
  /// One step, if the request wants steps: the canvas as text (empty: not wanted) and what changed.
  virtual std::string step(std::size_t choice, std::string_view canvas, const Json& facts) {
    (void)choice, (void)canvas, (void)facts;
    return "";
  }
  virtual std::string closing(std::size_t choice, const Generation& answer) = 0;
  virtual std::string end(const std::vector<Generation>& answers) = 0;
  virtual std::string error(const ApiError& error) = 0;
  virtual std::string keep_alive() const { return ": ping\n\n"; }
};

/// A parsed request for answers.
struct AnswerRequest {
  std::vector<std::vector<std::int32_t>> prompts;  ///< one answer each
  std::vector<GenerateOptions> options;            ///< as many
  std::vector<std::int32_t> suffix;                ///< token ids after each answer
  std::vector<std::int32_t> form;                  ///< of each answer; see ScheduledRequest
  std::vector<std::int32_t> shown{};               ///< see ScheduledRequest
  std::string preamble{};                          ///< see ScheduledRequest
  std::shared_ptr<const PromptImages> images{};    ///< of every prompt; null: none
  bool stream = false;
  bool diffusing = false;  ///< snapshots of the canvas instead of text that is final
  bool events = false;     ///< each step's changes, by position
};

/// Submits the request; the answer is sent when complete, or in pieces. Errors: those of Scheduler::submit().
Expected<void> answer(const CallPtr& call, AnswerRequest request, std::unique_ptr<AnswerFormat> format);

/// The form that `template` describes, a list of texts and {"mask": N}; false: there is none. Errors: kUsage.
Expected<bool> read_form(Fields& fields, const ServedModel& served, AnswerRequest& request);
/// `options` with the length of the request's form, if it has one. Errors: kUsage (more than the server allows).
Expected<GenerateOptions> for_form(GenerateOptions options, const AnswerRequest& request, const ServedModel& served);

/// Reads the fields `stream`, `diffusing` and `diffusion_events`. Errors: kUsage.
Expected<AnswerRequest> read_stream_fields(Fields& fields);

/// Reads `top_logprobs`: only the chosen tokens' probabilities are known, so 0 is the only number. Errors: kUsage.
Expected<void> read_top_logprobs(Fields& fields);
/// Reads `skip_special_tokens`: false shows the texts of all control tokens. Errors: kUsage.
Expected<void> read_shown(Fields& fields, const ServedModel& served, AnswerRequest& request);

/// Reads `stream_options.include_usage`. Errors: kUsage.
Expected<bool> read_usage_wish(Fields& fields, bool stream);
/// `choices` answers to one prompt, each with its own seed; the first has the request's.
void add_choices(AnswerRequest& request, const std::vector<std::int32_t>& prompt, const GenerateOptions& options,
                 std::size_t choices);
inline constexpr std::int64_t kMostChoices = 16;

// Parts that several APIs share.
std::string sse(const Json& data);
std::string sse(std::string_view event, const Json& data);
std::string new_id(std::string_view prefix, const Call& call);
/// {"prompt_tokens", …} summed over all answers; a prompt that several answers share counts once.
Json usage_json(const std::vector<Generation>& answers, std::size_t shared = 1);
/// The `dllm` object of an answer: passes, steps, seed, hash of the ids.
Json facts_json(const Generation& answer);
/// Tokens of the answer's text, each with its log-probability when it was committed.
struct TokenLogProb {
  std::string text;
  double log_prob = 0;
};
/// `shown`: control tokens that have a text too.
std::vector<TokenLogProb> log_probs(const LanguageModel& model, const Generation& answer,
                                    const std::vector<std::int32_t>& shown = {});
/// The same as OpenAI and Ollama write them.
Json log_probs_json(const LanguageModel& model, const Generation& answer, const std::vector<std::int32_t>& shown);

}  // namespace dllm::serve
