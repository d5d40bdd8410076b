#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "dllm/scheduler.h"
#include "engine/sequence.h"

namespace dllm {

/// A request of a scheduler from its submission to its end.
struct SchedulerJob {
  RequestId id = 0;
  ScheduledRequest request;
  ResolvedOptions resolved;
  std::chrono::steady_clock::time_point submitted = std::chrono::steady_clock::now();
  std::unique_ptr<Sequence> sequence{};  ///< null while it waits
  std::size_t first = 0, count = 0;      ///< its steps in the round's batch
  double seconds = 0;                    ///< its share of the rounds

  bool late() const;
  Error late_error() const;
  std::int64_t positions() const;  ///< of K and V that it holds
  RequestState state() const;      ///< RequestState::running is false
};

/// What other threads see of the running requests: each from the moment in which it leaves the queue until its end, as
/// it was after the last round. Every count of what runs comes from here.
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
