#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "dllm/generate.h"
#include "dllm/model.h"
#include "dllm/ranks.h"
#include "dllm/stop_token.h"

namespace dllm {

struct SchedulerOptions {
  std::int32_t parallel = 4;  ///< maximum requests in one forward pass, >= 1
  std::int32_t queue = 64;    ///< maximum waiting requests, >= 0
  /// Memory for K/V of finished tokens, from which later requests with the same first tokens start; 0: none are kept.
  /// For models in which a token's K/V depend on no later block: autoregressive, block-causal, of several modes, and
  /// those that refine canvases, on the CPU. Answers do not change.
  std::int64_t prefix_bytes = 0;
  /// Of a model on several ranks: called by any thread when a rank is lost, and when one is there again. Must not wait.
  std::function<void(const RanksEvent&)> on_ranks{};
};

/// What a request wants to know about each step.
enum class StepDetail {
  kNone,
  kText,    ///< StepEvent::text and the counts; the canvas stays empty
  kCanvas,  ///< everything
};

/// Called once per request, with its answer (FinishReason::kCancelled if it was cancelled) or an error.
using DoneCallback = std::function<void(Expected<Generation>)>;

struct ScheduledRequest {
  std::vector<std::int32_t> prompt;  ///< token ids
  GenerateOptions options;
  std::shared_ptr<const PromptImages> images{};  ///< of the prompt (TemplatedPrompt::images); null: none
  /// Token ids after the answer: given, visible from the first step on, and never changed. For bidirectional models and
  /// methods that revise nothing (else kUsage, kUnsupported).
  std::vector<std::int32_t> suffix{};
  /// The answer's form: token ids that are given and never change, and -1 where a token is to be found. Its size is the
  /// length (options.length must say the same), and every position is decided: stop tokens end nothing. Empty: none.
  /// For the same models and methods as `suffix`, which must then be empty.
  std::vector<std::int32_t> form{};
  /// Control tokens whose texts are in the answer's text too, as those around thoughts; others have none there.
  std::vector<std::int32_t> shown{};
  /// An expression for what comes before the text of a structured answer (GenerateOptions::json_schema and its kin):
  /// thoughts. Empty: nothing does.
  std::string preamble{};
  StepDetail detail = StepDetail::kNone;
  StepCallback on_step{};  ///< false cancels the request
  DoneCallback on_done{};
  /// A request that has not ended by then ends with an Error kCancelled whose `where` is kDeadline.
  std::optional<std::chrono::steady_clock::time_point> deadline{};
  /// Ends submit() with kCancelled while it compiles the structure of the answer; a submitted request ends by cancel().
  StopToken stop{};
};

using RequestId = std::uint64_t;

/// `where` of the errors for a full queue (kResource) and an expired deadline (kCancelled).
inline constexpr std::string_view kQueueFull = "queue", kDeadline = "deadline";

/// A submitted request that has not ended.
struct RequestState {
  RequestId id = 0;
  bool running = false;  ///< false: waiting
  std::int32_t prompt_tokens = 0;
  std::int32_t length = 0;   ///< positions after the prompt
  std::int32_t decided = 0;  ///< of these, decided
  std::int32_t steps = 0;
  std::int32_t nfe = 0;
  double seconds = 0;  ///< since it was submitted
};

/// Counters since construction.
struct SchedulerCounters {
  std::uint64_t submitted = 0;
  std::uint64_t refused = 0;    ///< the queue was full
  std::uint64_t finished = 0;   ///< with an answer that was not cancelled
  std::uint64_t cancelled = 0;  ///< by the caller, or by a deadline
  std::uint64_t failed = 0;
  std::uint64_t rounds = 0;  ///< forward passes of the model, each of up to `parallel` requests
  std::uint64_t prompt_tokens = 0;
  std::uint64_t answer_tokens = 0;
  std::uint64_t committed_tokens = 0;
  std::uint64_t nfe = 0;  ///< forward passes of single requests
  std::uint64_t rows = 0;
  double round_seconds = 0;
  std::int32_t running = 0, waiting = 0;  ///< now
  std::int64_t positions = 0;             ///< K/V positions that the running requests hold
  // SchedulerOptions::prefix_bytes.
  std::uint64_t prefix_hits = 0, prefix_misses = 0;  ///< requests that found kept tokens, and that found none
  std::uint64_t cached_tokens = 0;                   ///< of prompts, that were not computed again
  std::uint64_t evicted_tokens = 0;
  std::int64_t prefix_bytes = 0, prefix_tokens = 0;  ///< held now
};

/// Many requests on one model. A round is one forward pass of all running requests, each at its own step, with its own
/// method and length; requests join and leave between rounds. Requests start in the order of submission, every running
/// one makes one step per round, and each answer is delivered as soon as it is complete. Answers are bit-identical to
/// those of LanguageModel::generate().
///
/// On several ranks, a rank that is lost ends the running requests with kResource, and others start when ranks are
/// found: those that are left, or that have returned.
///
/// submit(), cancel() and the inspectors may be called from any thread, including from callbacks. Callbacks come from
/// the thread that calls step() or run(), one at a time, and must not block.
class Scheduler {
 public:
  /// `model` must outlive the scheduler and must not move. Errors: kUsage.
  static Expected<std::unique_ptr<Scheduler>> create(const LanguageModel& model, const SchedulerOptions& options);
  /// Cancels all unfinished requests. No step() may be in progress.
  ~Scheduler();

  /// Queues requests, all or none. Errors: kUsage (options, token ids, lengths: as generate()); kResource, `where`
  /// kQueueFull. `refused`: the index of the request that caused the error.
  Expected<std::vector<RequestId>> submit(std::vector<ScheduledRequest> requests, std::size_t* refused = nullptr);
  /// Removes the request before the next round and calls its on_done() first. False if it has already ended.
  bool cancel(RequestId id);
  /// Runs `job` before the next round, for other work on the model; one job per round. If no further round runs (run()
  /// was stopped), the job is dropped with the scheduler.
  void post(std::function<void()> job);

  /// One round. False if there was nothing to do. Only one thread at a time may call it.
  bool step();
  /// Runs rounds while there is work, sleeps otherwise, until `stop`, or until the backend's device is lost
  /// (LanguageModel::device_status() says why; all requests have ended then, and further ones are refused).
  void run(StopToken stop);

  SchedulerCounters counters() const;
  std::optional<RanksStatus> ranks() const;    ///< nullopt: the model runs on one
  std::vector<RequestState> requests() const;  ///< running ones first
  const SchedulerOptions& options() const;

 private:
  struct Impl;
  explicit Scheduler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dllm
