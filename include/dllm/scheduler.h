#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "dllm/generate.h"
#include "dllm/model.h"

namespace dllm {

struct SchedulerOptions {
  std::int32_t parallel = 4;  ///< requests in one forward pass at most, >= 1
  std::int32_t queue = 64;    ///< requests that wait at most, >= 0
};

/// What a request wants to be told of each step.
enum class StepDetail {
  kNone,
  kText,    ///< StepEvent::text and the counts; the canvas stays empty
  kCanvas,  ///< everything
};

/// Called once per request, with its answer (FinishReason::kCancelled: it was cancelled) or the reason why it has none.
using DoneCallback = std::function<void(Expected<Generation>)>;

struct ScheduledRequest {
  std::vector<std::int32_t> prompt;  ///< token ids
  GenerateOptions options;
  /// Token ids after the answer: given, visible from the first step on, and never changed. For models that see in all
  /// directions and methods that revise nothing (else kUsage, kUnsupported).
  std::vector<std::int32_t> suffix{};
  StepDetail detail = StepDetail::kNone;
  StepCallback on_step{};  ///< false cancels the request
  DoneCallback on_done{};
  /// When the request has not ended by then, it ends with an Error kCancelled whose `where` is kDeadline.
  std::optional<std::chrono::steady_clock::time_point> deadline{};
};

using RequestId = std::uint64_t;

/// `where` of the errors of a queue that is full (kResource) and of a deadline that has passed (kCancelled).
inline constexpr std::string_view kQueueFull = "queue", kDeadline = "deadline";

/// A request that has been submitted and has not ended.
struct RequestState {
  RequestId id = 0;
  bool running = false;  ///< false: it waits
  std::int32_t prompt_tokens = 0;
  std::int32_t length = 0;   ///< positions after the prompt
  std::int32_t decided = 0;  ///< of them
  std::int32_t steps = 0;
  std::int32_t nfe = 0;
  double seconds = 0;  ///< since it was submitted
};

/// Counts since the scheduler was made.
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
};

/// Many requests on one model. A round is one forward pass of every running request, each at its own phase, with its
/// own method and length; between two rounds requests leave and others join. Requests start in the order in which they
/// were submitted, every running one makes a step per round, and an answer is given when it is done, whatever the
/// others do. Answers are bit for bit those of LanguageModel::generate().
///
/// submit(), cancel() and the inspectors may be called from any thread, also from callbacks. Callbacks come from the
/// thread that calls step() or run(), one at a time, and must not block.
class Scheduler {
 public:
  /// `model` must outlive the scheduler, and not move. Errors: kUsage.
  static Expected<std::unique_ptr<Scheduler>> create(const LanguageModel& model, const SchedulerOptions& options);
  /// Ends what has not ended as cancelled. No step() may be under way.
  ~Scheduler();

  /// Queues requests, all or none. Errors: kUsage (options, token ids, lengths: as of generate()); kResource, `where`
  /// kQueueFull. `refused`: the index of the request that the error is about.
  Expected<std::vector<RequestId>> submit(std::vector<ScheduledRequest> requests, std::size_t* refused = nullptr);
  /// The request is no part of the next round; its on_done() comes before that. False if it has ended.
  bool cancel(RequestId id);
  /// Runs `job` before the next round, for other work on the model; one job per round. A job that no round comes for
  /// (run() was stopped) is dropped with the scheduler.
  void post(std::function<void()> job);

  /// One round. False if there was nothing to do. One thread at a time.
  bool step();
  /// Rounds as long as there is work, sleeps otherwise, until `stop`.
  void run(std::stop_token stop);

  SchedulerCounters counters() const;
  std::vector<RequestState> requests() const;  ///< running ones first
  const SchedulerOptions& options() const;

 private:
  struct Impl;
  explicit Scheduler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dllm
