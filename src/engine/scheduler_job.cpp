#include "engine/scheduler_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "dllm/decoder.h"

namespace dllm {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Error error_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const DecisionError& decision) {
    return decision.error;
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kResource, "out of memory", "", ""};
  } catch (const std::exception& other) {
    return {ErrorCode::kUsage, other.what(), "a decoder or callback of this program", ""};
  } catch (...) {
    return {ErrorCode::kUsage, "an exception without a text", "a decoder or callback of this program", ""};
  }
}

bool SchedulerJob::late() const { return request.deadline && std::chrono::steady_clock::now() >= *request.deadline; }

Error SchedulerJob::late_error() const {
  return {ErrorCode::kCancelled,
          fmt::format("the request was not done after {:.0f} s", seconds_between(submitted, *request.deadline)),
          std::string(kDeadline), "ask for fewer tokens, or try again when there is less to do"};
}

std::int64_t SchedulerJob::positions() const {
  return sequence ? static_cast<std::int64_t>(sequence->capacity()) * (resolved.cfg_scale != 0 ? 2 : 1) : 0;
}

RequestState SchedulerJob::state() const {
  RequestState state;
  state.id = id;
  state.prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
  state.length = resolved.length;
  state.seconds = seconds_between(submitted, std::chrono::steady_clock::now());
  if (!sequence) return state;
  state.length = sequence->answer_size();
  state.decided = sequence->decided();
  state.steps = sequence->counters().steps;
  state.nfe = sequence->counters().nfe;
  return state;
}

Generation SchedulerJob::nothing() {
  Generation none;
  none.stats.prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
  none.prompt_ids = std::move(request.prompt);
  none.options = std::move(resolved);
  none.finish = FinishReason::kCancelled;
  return none;
}

Expected<void> check_scheduling(const SchedulerOptions& options) {
  if (options.parallel < 1)
    return Error{ErrorCode::kUsage, fmt::format("{} requests at once", options.parallel), "--parallel",
                 "give at least 1"};
  if (options.queue < 0)
    return Error{ErrorCode::kUsage, fmt::format("a queue of {}", options.queue), "--queue", "give at least 0"};
  if (options.prefix_bytes < 0)
    return Error{ErrorCode::kUsage, fmt::format("{} bytes for prefixes", options.prefix_bytes), "--prefix-cache",
                 "give at least 0"};
  return {};
}

void RunningRequests::join(const SchedulerJob& job) {
  seen_.push_back({job.state(), job.positions()});
  seen_.back().state.running = true;
}

void RunningRequests::leave(RequestId id) {
  std::erase_if(seen_, [id](const Seen& one) { return one.state.id == id; });
}

bool RunningRequests::contains(RequestId id) const {
  return std::ranges::any_of(seen_, [id](const Seen& one) { return one.state.id == id; });
}

std::int64_t RunningRequests::positions() const {
  std::int64_t sum = 0;
  for (const Seen& one : seen_) sum += one.positions;
  return sum;
}

std::vector<RequestState> RunningRequests::states() const {
  std::vector<RequestState> all;
  for (const Seen& one : seen_) all.push_back(one.state);
  return all;
}

}  // namespace dllm
