#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api.h"

namespace dllm::serve {

/// How an API writes answers. One object per request; calls come one at a time.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  /// Everything at once.
  virtual Json whole(const std::vector<Generation>& answers) = 0;

  /// How much of an answer's text may be told, the text being final; `complete`: it will not grow.
  virtual std::string shown(const std::string& text, bool complete) {
    (void)complete;
    return text;
  }

  // Pieces of a stream of server-sent events; what an API has no event for is empty.
  virtual std::string opening() { return ""; }
  /// Text of answer `choice` that is final and follows what was told of it.
  virtual std::string text(std::size_t choice, std::string_view more) = 0;
  /// One step, where the request asked for that: the canvas as text (empty: not asked for), and what changed.
  virtual std::string step(std::size_t choice, std::string_view canvas, const Json& facts) {
    (void)choice, (void)canvas, (void)facts;
    return "";
  }
  virtual std::string closing(std::size_t choice, const Generation& answer) = 0;
  virtual std::string end(const std::vector<Generation>& answers) = 0;
  virtual std::string error(const ApiError& error) = 0;
  virtual std::string keep_alive() const { return ": ping\n\n"; }
};

/// A request for answers, read.
struct AnswerRequest {
  std::vector<std::vector<std::int32_t>> prompts;  ///< one answer each
  std::vector<GenerateOptions> options;            ///< as many
  std::vector<std::int32_t> suffix;                ///< token ids after each answer
  bool stream = false;
  bool diffusing = false;  ///< snapshots of the canvas instead of text that is final
  bool events = false;     ///< each step's changes, by position
};

/// Submits the request, and answers the call when it is done or piece by piece. Errors: those of Scheduler::submit().
Expected<void> answer(const CallPtr& call, AnswerRequest request, std::unique_ptr<AnswerFormat> format);

/// `stream`, `diffusing`, `diffusion_events` of the fields. Errors: kUsage.
Expected<AnswerRequest> read_stream_fields(Fields& fields);

/// `stream_options.include_usage`. Errors: kUsage.
Expected<bool> read_usage_wish(Fields& fields, bool stream);
/// `choices` answers to one prompt; each has a seed of its own, the first the request's.
void add_choices(AnswerRequest& request, const std::vector<std::int32_t>& prompt, const GenerateOptions& options,
                 std::size_t choices);
inline constexpr std::int64_t kMostChoices = 16;

// Parts that the formats share.
std::string sse(const Json& data);
std::string sse(std::string_view event, const Json& data);
std::string new_id(std::string_view prefix, const Call& call);
/// "stop" or "length"
std::string finish_name(const Generation& answer);
/// {"prompt_tokens", …} of all answers; prompts that several answers share count once.
Json usage_json(const std::vector<Generation>& answers, std::size_t shared = 1);
/// What our answers say of themselves: passes, steps, seed, the fingerprint of the ids.
Json facts_json(const Generation& answer);
/// Tokens of the answer's text with the logarithm of the probability that each had when it was committed.
struct TokenLogProb {
  std::string text;
  double log_prob = 0;
};
std::vector<TokenLogProb> log_probs(const LanguageModel& model, const Generation& answer);

/// The text of a message's content: a text, or a list of parts of type "text", "input_text" or "output_text". Errors:
/// kUsage (images and other parts).
Expected<std::string> content_text(const Json& content, std::string_view field);
/// {"role", "content"} of a list. Errors: kUsage.
Expected<std::vector<ChatTurn>> read_turns(const Api& api, const Json& list, std::string_view field);
/// Ids of a conversation. Errors: kUsage.
Expected<std::vector<std::int32_t>> template_ids(const Api& api, const std::vector<ChatTurn>& turns);

}  // namespace dllm::serve
