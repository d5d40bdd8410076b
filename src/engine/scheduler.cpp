#include "dllm/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <utility>

#include "base/try.h"
#include "engine/language_model_impl.h"
#include "engine/sequence.h"

namespace dllm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// A request from its submission to its end.
struct Job {
  RequestId id = 0;
  ScheduledRequest request;
  ResolvedOptions resolved;
  Clock::time_point submitted = Clock::now();
  std::unique_ptr<Sequence> sequence{};  ///< null while it waits
  std::size_t first = 0, count = 0;      ///< its steps in the round's batch
  double seconds = 0;                    ///< its share of the rounds

  bool late() const { return request.deadline && Clock::now() >= *request.deadline; }
  Error late_error() const {
    return {ErrorCode::kCancelled,
            fmt::format("the request was not done after {:.0f} s",
                        std::chrono::duration<double>(*request.deadline - submitted).count()),
            std::string(kDeadline), "ask for fewer tokens, or try again when there is less to do"};
  }
  std::int64_t positions() const {
    return sequence ? static_cast<std::int64_t>(sequence->capacity()) * (resolved.cfg_scale != 0 ? 2 : 1) : 0;
  }
};

RequestState state_of(const Job& job) {
  RequestState state;
  state.id = job.id;
  state.prompt_tokens = static_cast<std::int32_t>(job.request.prompt.size());
  state.length = job.resolved.length;
  state.seconds = seconds_since(job.submitted);
  if (!job.sequence) return state;
  state.running = true;
  state.decided = job.sequence->decided();
  state.steps = job.sequence->counters().steps;
  state.nfe = job.sequence->counters().nfe;
  return state;
}

}  // namespace

struct Scheduler::Impl {
  LanguageModel::Impl& model;
  SchedulerOptions options;

  mutable std::mutex mutex{};  ///< of everything in this paragraph
  std::condition_variable_any wake{};
  std::deque<Job> waiting{};
  std::deque<std::function<void()>> jobs{};
  std::set<RequestId> to_cancel{};    ///< running ones
  std::vector<RequestState> shown{};  ///< the running ones, as the last round left them
  SchedulerCounters counts{};
  RequestId next_id = 1;

  std::vector<Job> running{};  ///< of the thread that steps

  Expected<std::vector<RequestId>> submit(std::vector<ScheduledRequest> requests, std::size_t* refused);
  bool cancel(RequestId id);
  bool step();
  void sleep(std::stop_token stop);

  void end(Job& job, Expected<Generation> result);
  void finish(Job& job, bool cancelled);
  bool leave();
  void drop_waiting();
  bool admit();
  Expected<void> start(Job& job);
  std::vector<SequenceStep> gather();
  void forward(const std::vector<SequenceStep>& steps);
  void report(Job& job, const DenoiseStep& step);
  void show();
};

Expected<std::vector<RequestId>> Scheduler::Impl::submit(std::vector<ScheduledRequest> requests, std::size_t* refused) {
  std::vector<Job> made;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (refused != nullptr) *refused = i;
    DLLM_TRY(ResolvedOptions resolved, model.resolve(requests[i].options));
    DLLM_CHECK_OK(Sequence::check(model.model->desc(), requests[i].prompt, resolved, requests[i].suffix));
    made.push_back({0, std::move(requests[i]), std::move(resolved)});
  }
  const std::lock_guard lock(mutex);
  // A place that is free in the next round is no place in the queue.
  const auto places = static_cast<std::size_t>(options.queue) + static_cast<std::size_t>(options.parallel);
  if (waiting.size() + static_cast<std::size_t>(counts.running) + made.size() > places) {
    counts.refused += made.size();
    return Error{ErrorCode::kResource,
                 fmt::format("{} requests run and {} wait: there is no place for {} more", counts.running,
                             waiting.size(), made.size()),
                 std::string(kQueueFull), "try again later"};
  }
  std::vector<RequestId> ids;
  for (Job& job : made) {
    ids.push_back(job.id = next_id++);
    waiting.push_back(std::move(job));
  }
  counts.submitted += ids.size();
  counts.waiting = static_cast<std::int32_t>(waiting.size());
  wake.notify_one();
  return ids;
}

bool Scheduler::Impl::cancel(RequestId id) {
  const std::lock_guard lock(mutex);
  const bool known = std::ranges::any_of(waiting, [id](const Job& job) { return job.id == id; }) ||
                     std::ranges::any_of(shown, [id](const RequestState& state) { return state.id == id; });
  if (known) to_cancel.insert(id);
  wake.notify_one();
  return known;
}

/// Tells the caller, after the counts.
void Scheduler::Impl::end(Job& job, Expected<Generation> result) {
  {
    const std::lock_guard lock(mutex);
    if (!result) {
      ++(result.error().code == ErrorCode::kCancelled ? counts.cancelled : counts.failed);
    } else {
      ++(result->finish == FinishReason::kCancelled ? counts.cancelled : counts.finished);
      counts.answer_tokens += static_cast<std::uint64_t>(result->stats.answer_tokens);
      counts.committed_tokens += static_cast<std::uint64_t>(result->stats.committed_tokens);
    }
    to_cancel.erase(job.id);
    // A caller that has its answer finds the request in no list.
    counts.running -= static_cast<std::int32_t>(std::erase_if(shown, [&](const auto& s) { return s.id == job.id; }));
  }
  if (job.request.on_done) job.request.on_done(std::move(result));
}

void Scheduler::Impl::finish(Job& job, bool cancelled) {
  end(job, model.checked(Expected<Generation>(job.sequence->finish(cancelled, job.seconds))));
}

/// Running requests that are cancelled or late. True if there was one.
bool Scheduler::Impl::leave() {
  std::set<RequestId> cancelled;
  {
    const std::lock_guard lock(mutex);
    cancelled = to_cancel;
  }
  std::vector<Job> staying;
  for (Job& job : running) {
    if (cancelled.contains(job.id))
      finish(job, /*cancelled=*/true);
    else if (job.late())
      end(job, job.late_error());
    else
      staying.push_back(std::move(job));
  }
  const bool left = staying.size() < running.size();
  running = std::move(staying);
  return left;
}

/// The same for those that wait.
void Scheduler::Impl::drop_waiting() {
  std::vector<Job> gone;
  {
    const std::lock_guard lock(mutex);
    std::deque<Job> staying;
    for (Job& job : waiting)
      if (to_cancel.contains(job.id) || job.late())
        gone.push_back(std::move(job));
      else
        staying.push_back(std::move(job));
    waiting = std::move(staying);
    counts.waiting = static_cast<std::int32_t>(waiting.size());
    // Who had ended when cancel() came is in no list any more.
    const auto has = [](const auto& list, RequestId id) {
      return std::ranges::any_of(list, [id](const Job& job) { return job.id == id; });
    };
    std::erase_if(to_cancel, [&](RequestId id) { return !has(waiting, id) && !has(running, id) && !has(gone, id); });
  }
  for (Job& job : gone) {
    Generation none;
    none.stats.prompt_tokens = static_cast<std::int32_t>(job.request.prompt.size());
    none.prompt_ids = std::move(job.request.prompt);
    none.options = std::move(job.resolved);
    none.finish = FinishReason::kCancelled;
    if (job.late())
      end(job, job.late_error());
    else
      end(job, std::move(none));
  }
}

Expected<void> Scheduler::Impl::start(Job& job) {
  const std::lock_guard lock(model.mutex);
  DLLM_TRY(const LatencyTable* const latency, model.latency_table(job.resolved, {}));
  DLLM_TRY(PassRunner* const second, model.second_path(job.resolved));
  DLLM_TRY(job.sequence, Sequence::start(*model.running.backend, model.model->tokenizer(), job.request.prompt,
                                         job.resolved, latency, second, job.request.suffix));
  return {};
}

/// Starts the request that waits longest. False: there is none, or no place.
bool Scheduler::Impl::admit() {
  if (running.size() >= static_cast<std::size_t>(options.parallel)) return false;
  Job job;
  {
    const std::lock_guard lock(mutex);
    if (waiting.empty()) return false;
    job = std::move(waiting.front());
    waiting.pop_front();
    counts.waiting = static_cast<std::int32_t>(waiting.size());
    counts.prompt_tokens += job.request.prompt.size();
    ++counts.running;  // no moment between the two lists: submit() counts both
    shown.push_back(state_of(job));
  }
  if (const auto started = start(job); !started)
    end(job, started.error());
  else
    running.push_back(std::move(job));
  return true;
}

/// The steps of the next round. Requests that have nothing more to do leave, and others take their places in this
/// round already.
std::vector<SequenceStep> Scheduler::Impl::gather() {
  std::vector<SequenceStep> steps;
  std::vector<Job> staying;
  do {
    for (Job& job : running) {
      const auto mine = job.sequence->prepare();
      if (mine.empty()) {
        finish(job, /*cancelled=*/false);
        continue;
      }
      job.first = steps.size();
      job.count = mine.size();
      append_steps(steps, mine);
      staying.push_back(std::move(job));
    }
    // From here on `running` holds only those that have not been asked in this round.
    running.clear();
    const std::size_t asked = staying.size();
    while (asked + running.size() < static_cast<std::size_t>(options.parallel) && admit()) {
    }
  } while (!running.empty());
  running = std::move(staying);
  return steps;
}

void Scheduler::Impl::report(Job& job, const DenoiseStep& step) {
  if (!job.request.on_step) return;
  const StepDetail detail = job.request.detail;
  const StepEvent event =
      detail == StepDetail::kNone ? StepEvent() : job.sequence->event(step, detail == StepDetail::kCanvas);
  if (job.request.on_step(event)) return;
  const std::lock_guard lock(mutex);
  to_cancel.insert(job.id);
}

void Scheduler::Impl::forward(const std::vector<SequenceStep>& steps) {
  const Clock::time_point begin = Clock::now();
  const auto scores = [&] {
    const std::lock_guard lock(model.mutex);
    return model.running.backend->forward(steps);
  }();
  const double seconds = seconds_since(begin), share = seconds / static_cast<double>(running.size());
  std::vector<Job> staying;
  std::uint64_t nfe = 0, rows = 0;
  for (const SequenceStep& step : steps) rows += step.plan.rows.size();
  for (Job& job : running) {
    job.seconds += share;
    nfe += job.count;
    // A pass that failed tells nobody whose rows were too many.
    if (!scores) {
      end(job, scores.error());
      continue;
    }
    const auto step = job.sequence->absorb(std::span(*scores).subspan(job.first, job.count));
    if (!step) {
      end(job, step.error());
      continue;
    }
    report(job, *step);
    staying.push_back(std::move(job));
  }
  running = std::move(staying);
  const std::lock_guard lock(mutex);
  ++counts.rounds;
  counts.nfe += nfe;
  counts.rows += rows;
  counts.round_seconds += seconds;
}

void Scheduler::Impl::show() {
  std::vector<RequestState> states;
  std::int64_t positions = 0;
  for (const Job& job : running) {
    states.push_back(state_of(job));
    positions += job.positions();
  }
  const std::lock_guard lock(mutex);
  shown = std::move(states);
  counts.running = static_cast<std::int32_t>(running.size());
  counts.positions = positions;
}

bool Scheduler::Impl::step() {
  std::function<void()> job;
  {
    const std::lock_guard lock(mutex);
    if (!jobs.empty()) {
      job = std::move(jobs.front());
      jobs.pop_front();
    }
  }
  if (job) job();
  const bool left = leave();
  drop_waiting();
  if (left) show();
  const std::vector<SequenceStep> steps = gather();
  show();
  if (!steps.empty()) forward(steps);
  show();
  const std::lock_guard lock(mutex);
  return job || left || !steps.empty() || !waiting.empty() || !jobs.empty();
}

void Scheduler::Impl::sleep(std::stop_token stop) {
  std::unique_lock lock(mutex);
  wake.wait(lock, stop, [this] { return !waiting.empty() || !jobs.empty() || !to_cancel.empty(); });
}

Scheduler::Scheduler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(impl_->mutex);
    for (const Job& job : impl_->waiting) impl_->to_cancel.insert(job.id);
    for (const Job& job : impl_->running) impl_->to_cancel.insert(job.id);
  }
  impl_->leave();
  impl_->drop_waiting();
}

Expected<std::unique_ptr<Scheduler>> Scheduler::create(const LanguageModel& model, const SchedulerOptions& options) {
  if (options.parallel < 1)
    return Error{ErrorCode::kUsage, fmt::format("{} requests at once", options.parallel), "--parallel",
                 "give at least 1"};
  if (options.queue < 0)
    return Error{ErrorCode::kUsage, fmt::format("a queue of {}", options.queue), "--queue", "give at least 0"};
  return std::unique_ptr<Scheduler>(new Scheduler(std::unique_ptr<Impl>(new Impl{*model.impl_, options})));
}

Expected<std::vector<RequestId>> Scheduler::submit(std::vector<ScheduledRequest> requests, std::size_t* refused) {
  return impl_->submit(std::move(requests), refused);
}

bool Scheduler::cancel(RequestId id) { return impl_->cancel(id); }

void Scheduler::post(std::function<void()> job) {
  const std::lock_guard lock(impl_->mutex);
  impl_->jobs.push_back(std::move(job));
  impl_->wake.notify_one();
}

bool Scheduler::step() { return impl_->step(); }

void Scheduler::run(std::stop_token stop) {
  while (!stop.stop_requested())
    if (!impl_->step()) impl_->sleep(stop);
}

SchedulerCounters Scheduler::counters() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->counts;
}

std::vector<RequestState> Scheduler::requests() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<RequestState> all = impl_->shown;
  for (const Job& job : impl_->waiting) all.push_back(state_of(job));
  return all;
}

const SchedulerOptions& Scheduler::options() const { return impl_->options; }

}  // namespace dllm
