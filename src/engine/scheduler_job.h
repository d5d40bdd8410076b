#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <vector>

#include "dllm/error.h"
#include "dllm/generate.h"
#include "dllm/scheduler.h"
#include "engine/rounds.h"

namespace dllm {

/// A scheduler's request from submission to end. It has no sequence while it waits.
struct SchedulerJob : RoundJob {
  RequestId id = 0;
  ScheduledRequest request;
  ResolvedOptions resolved;
  ConstraintPtr constraint{};  ///< null: none
  std::uint64_t group = 0;     ///< of ranks, at its start
  std::chrono::steady_clock::time_point submitted = std::chrono::steady_clock::now();

  /// What is given of the answer.
  Given given() const {
    return {request.suffix, request.form, constraint, request.shown, request.images, !request.preamble.empty()};
  }
  bool late() const;
  Error late_error() const;
  Generation nothing();            ///< what a request gives that is cancelled while it waits
  std::int64_t positions() const;  ///< K and V rows that it holds
  RequestState state() const;      ///< RequestState::running is false
};

/// What a decoder or a callback of a user threw.
Error error_of(const std::exception_ptr& thrown);

/// Errors: kUsage.
Expected<void> check_scheduling(const SchedulerOptions& options);

/// Other threads' view of the running requests: each from the moment it leaves the queue until its end, with its state
/// after the last round. All counts of running requests come from here.
class RunningRequests {
 public:
  void join(const SchedulerJob& job);
  void leave(RequestId id);

  std::size_t size() const { return seen_.size(); }
  bool contains(RequestId id) const;
  std::int64_t positions() const;
  std::vector<RequestState> states() const;

 private:
  struct Seen {
    RequestState state;
    std::int64_t positions = 0;
  };
  std::vector<Seen> seen_;
};

}  // namespace dllm
