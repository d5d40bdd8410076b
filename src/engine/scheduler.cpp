#include "dllm/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <utility>

#include "base/to_size.h"
#include "base/try.h"
#include "engine/kept_ranks.h"
#include "engine/language_model_impl.h"
#include "engine/prefix_store.h"
#include "engine/scheduler_job.h"

namespace dllm {
struct Scheduler::Impl final : Rounds<SchedulerJob>::Owner {
  LanguageModel::Impl& model;
  SchedulerOptions options;

  mutable std::mutex mutex{};  ///< guards the members of this paragraph
  std::condition_variable_any wake{};
  std::deque<SchedulerJob> waiting{};
  std::deque<std::function<void()>> jobs{};
  std::set<RequestId> to_cancel{};  ///< running ones
  RunningRequests shown{};
  std::optional<Error> lost{};  ///< why the backend's device runs no pass any more
  SchedulerCounters totals{};   ///< without momentary counts, which counters() adds
  RequestId next_id = 1;

  SharedBackend backend;
  Rounds<SchedulerJob> rounds;            ///< owned by the thread that steps
  std::optional<PrefixStore> prefixes{};  ///< guarded by the model's passes
  PrefixCounters before{};                ///< of earlier stores; likewise
  std::uint64_t group = 0;                ///< of ranks, whose rows `prefixes` holds; likewise
  KeptRanks ranks;

  Impl(LanguageModel::Impl& of, const SchedulerOptions& with)
      : model(of),
        options(with),
        backend(*of.running.backend, of.passes, std::nullopt),
        rounds(to_size(with.parallel), *this),
        ranks(of.running.ranks, of.passes) {}

  Expected<std::vector<RequestId>> submit(std::vector<ScheduledRequest> requests, std::size_t* refused);
  bool cancel(RequestId id);
  bool step(const std::stop_token& stop);
  void sleep(std::stop_token stop);

  void end(SchedulerJob& job, Expected<Generation> result);
  void finish(SchedulerJob& job, bool cancelled);
  void keep_prefix(const SchedulerJob& job);
  void make_prefixes();
  bool leave();
  void drop_waiting();
  void check_device(const Error& failed);
  Expected<void> start(SchedulerJob& job);
  void forward(const std::vector<SequenceStep>& steps);
  // Of Rounds.
  std::optional<SchedulerJob> next() override;
  void ended(SchedulerJob& job) override { finish(job, /*cancelled=*/false); }
  void failed(SchedulerJob& job, Error error) override { end(job, std::move(error)); }
  void stepped(SchedulerJob& job, const DenoiseStep& step) override;
  void threw(SchedulerJob& job, std::exception_ptr thrown) override { end(job, error_of(thrown)); }
  void show();
  void show_prefixes(const PrefixCounters& now);
  SchedulerCounters counters() const;
};

Expected<std::vector<RequestId>> Scheduler::Impl::submit(std::vector<ScheduledRequest> requests, std::size_t* refused) {
  std::vector<SchedulerJob> made;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (refused != nullptr) *refused = i;
    DLLM_TRY(ResolvedOptions resolved, model.resolve(requests[i].options));
    DLLM_CHECK_OK(
        Sequence::check(model.desc(), requests[i].prompt, resolved,
                        {.suffix = requests[i].suffix, .form = requests[i].form, .images = requests[i].images}));
    const Preamble preamble{requests[i].preamble, requests[i].shown};
    DLLM_TRY(ConstraintPtr constraint, model.constraint_of(resolved, requests[i].stop, preamble));
    made.push_back({{}, 0, std::move(requests[i]), std::move(resolved), std::move(constraint)});
  }
  const std::lock_guard lock(mutex);
  if (lost) return *lost;
  // A request slot that is free in the next round does not add to the queue's capacity.
  const auto places = to_size(options.queue) + to_size(options.parallel);
  if (waiting.size() + shown.size() + made.size() > places) {
    totals.refused += made.size();
    return Error{ErrorCode::kResource,
                 fmt::format("{} requests run and {} wait: there is no place for {} more", shown.size(), waiting.size(),
                             made.size()),
                 std::string(kQueueFull), "try again later"};
  }
  std::vector<RequestId> ids;
  for (SchedulerJob& job : made) {
    ids.push_back(job.id = next_id++);
    waiting.push_back(std::move(job));
  }
  totals.submitted += ids.size();
  wake.notify_one();
  return ids;
}

bool Scheduler::Impl::cancel(RequestId id) {
  const std::lock_guard lock(mutex);
  const bool known =
      std::ranges::any_of(waiting, [id](const SchedulerJob& job) { return job.id == id; }) || shown.contains(id);
  if (known) to_cancel.insert(id);
  wake.notify_one();
  return known;
}

/// An empty store. What it has counted is counted on.
void Scheduler::Impl::make_prefixes() {
  const auto block = Sequence::prefix_block(model.desc());
  if (!block || options.prefix_bytes <= 0) return;
  if (prefixes) {
    const PrefixCounters now = prefixes->counters();
    before.hits += now.hits, before.misses += now.misses, before.cached_tokens += now.cached_tokens;
    before.evicted_tokens += now.evicted_tokens + static_cast<std::uint64_t>(now.tokens);
  }
  prefixes.emplace(*block, options.prefix_bytes);
  group = ranks.group();
}

/// Notifies the caller, once the counters are right.
void Scheduler::Impl::end(SchedulerJob& job, Expected<Generation> result) {
  {
    const std::lock_guard lock(mutex);
    if (!result) {
      ++(result.error().code == ErrorCode::kCancelled ? totals.cancelled : totals.failed);
    } else {
      ++(result->finish == FinishReason::kCancelled ? totals.cancelled : totals.finished);
      totals.answer_tokens += static_cast<std::uint64_t>(result->stats.answer_tokens);
      totals.committed_tokens += static_cast<std::uint64_t>(result->stats.committed_tokens);
    }
    to_cancel.erase(job.id);
    shown.leave(job.id);  // when a caller has its answer, no list contains the request
  }
  if (job.request.on_done) job.request.on_done(std::move(result));
}

void Scheduler::Impl::keep_prefix(const SchedulerJob& job) {
  if (!prefixes) return;
  PrefixCounters now;
  {
    const auto turn = model.passes.take();
    if (!turn || job.group != ranks.group()) return;
    job.sequence->keep_prefix(*prefixes, *model.running.backend);
    now = prefixes->counters();
  }
  show_prefixes(now);
}

void Scheduler::Impl::finish(SchedulerJob& job, bool cancelled) {
  keep_prefix(job);
  end(job, model.checked(Expected<Generation>(job.sequence->finish(cancelled, job.seconds))));
}

/// Ends running requests that are cancelled or late. True if there was one.
bool Scheduler::Impl::leave() {
  std::set<RequestId> cancelled;
  {
    const std::lock_guard lock(mutex);
    cancelled = to_cancel;
  }
  std::vector<SchedulerJob> staying;
  std::vector<SchedulerJob>& running = rounds.running();
  for (SchedulerJob& job : running) {
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

/// The same for waiting requests.
void Scheduler::Impl::drop_waiting() {
  std::vector<SchedulerJob> gone;
  {
    const std::lock_guard lock(mutex);
    std::deque<SchedulerJob> staying;
    for (SchedulerJob& job : waiting)
      if (to_cancel.contains(job.id) || job.late())
        gone.push_back(std::move(job));
      else
        staying.push_back(std::move(job));
    waiting = std::move(staying);
    // Requests that had ended when cancel() was called are in no list any more.
    const auto has = [](const auto& list, RequestId id) {
      return std::ranges::any_of(list, [id](const SchedulerJob& job) { return job.id == id; });
    };
    std::erase_if(to_cancel,
                  [&](RequestId id) { return !has(waiting, id) && !has(rounds.running(), id) && !has(gone, id); });
  }
  for (SchedulerJob& job : gone) end(job, job.late() ? Expected<Generation>(job.late_error()) : job.nothing());
}

/// After a pass that failed: with a lost device no later one can succeed, and nobody shall wait for it.
void Scheduler::Impl::check_device(const Error& failed) {
  if (!model.running.device || model.running.device().failure.empty()) return;
  std::deque<SchedulerJob> gone;
  {
    const std::lock_guard lock(mutex);
    lost = failed;
    gone = std::exchange(waiting, {});
  }
  for (SchedulerJob& job : gone) end(job, failed);
}

Expected<void> Scheduler::Impl::start(SchedulerJob& job) {
  AnswerHost host{backend, model.model->tokenizer()};
  {
    DLLM_TRY(const Turns::Turn turn, model.passes.take());
    DLLM_TRY(host.latency, model.latency_table(job.resolved, {}));
    DLLM_TRY(host.second, model.second_path(job.resolved));
  }
  job.group = ranks.group();
  DLLM_TRY(job.sequence, Sequence::start(host, job.request.prompt, job.resolved, job.given()));
  if (!prefixes) return {};
  DLLM_TRY(const Turns::Turn turn, model.passes.take());
  if (group != ranks.group()) make_prefixes();
  job.sequence->read_prefix(*prefixes);
  show_prefixes(prefixes->counters());
  return {};
}

/// Starts the request that has waited longest, and those after it if it cannot start.
std::optional<SchedulerJob> Scheduler::Impl::next() {
  for (;;) {
    SchedulerJob job;
    {
      const std::lock_guard lock(mutex);
      if (waiting.empty()) return std::nullopt;
      job = std::move(waiting.front());
      waiting.pop_front();
      totals.prompt_tokens += job.request.prompt.size();
      shown.join(job);  // atomically between the two lists: submit() counts both
    }
    const auto started = start(job);
    if (started) return job;
    end(job, started.error());
  }
}

void Scheduler::Impl::stepped(SchedulerJob& job, const DenoiseStep& step) {
  if (job.sequence->counters().nfe == static_cast<std::int32_t>(job.count)) keep_prefix(job);  // it has its prompt
  if (!job.request.on_step) return;
  const StepDetail detail = job.request.detail;
  const StepEvent event =
      detail == StepDetail::kNone ? StepEvent() : job.sequence->event(step, detail == StepDetail::kCanvas);
  if (job.request.on_step(event)) return;
  const std::lock_guard lock(mutex);
  to_cancel.insert(job.id);
}

void Scheduler::Impl::forward(const std::vector<SequenceStep>& steps) {
  const RoundWork work = rounds.forward(backend, steps);
  if (work.failure) {
    // A failed pass does not tell whose rows were too many.
    for (SchedulerJob& job : rounds.running()) end(job, *work.failure);
    rounds.running().clear();
    check_device(*work.failure);
  }
  const std::lock_guard lock(mutex);
  ++totals.rounds;
  totals.nfe += work.nfe;
  totals.rows += work.rows;
  totals.round_seconds += work.seconds;
}

void Scheduler::Impl::show() {
  RunningRequests now;
  for (const SchedulerJob& job : rounds.running()) now.join(job);
  const std::lock_guard lock(mutex);
  shown = std::move(now);
}

void Scheduler::Impl::show_prefixes(const PrefixCounters& now) {
  const std::lock_guard lock(mutex);
  totals.prefix_hits = before.hits + now.hits;
  totals.prefix_misses = before.misses + now.misses;
  totals.cached_tokens = before.cached_tokens + now.cached_tokens;
  totals.evicted_tokens = before.evicted_tokens + now.evicted_tokens;
  totals.prefix_bytes = now.bytes;
  totals.prefix_tokens = now.tokens;
}

SchedulerCounters Scheduler::Impl::counters() const {
  const std::lock_guard lock(mutex);
  SchedulerCounters now = totals;
  now.running = static_cast<std::int32_t>(shown.size());
  now.waiting = static_cast<std::int32_t>(waiting.size());
  now.positions = shown.positions();
  return now;
}

bool Scheduler::Impl::step(const std::stop_token& stop) {
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
  if (rounds.running().empty()) ranks.renew([&stop] { return !stop.stop_requested(); });
  const std::vector<SequenceStep> steps = rounds.gather();
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
    for (const SchedulerJob& job : impl_->waiting) impl_->to_cancel.insert(job.id);
    for (const SchedulerJob& job : impl_->rounds.running()) impl_->to_cancel.insert(job.id);
  }
  impl_->leave();
  impl_->drop_waiting();
}

Expected<std::unique_ptr<Scheduler>> Scheduler::create(const LanguageModel& model, const SchedulerOptions& options) {
  DLLM_CHECK_OK(check_scheduling(options));
  auto impl = std::make_unique<Impl>(*model.impl_, options);
  impl->make_prefixes();
  impl->ranks.keep(options.on_ranks, [of = impl.get()] {
    const std::lock_guard lock(of->mutex);
    of->jobs.emplace_back([] {});
    of->wake.notify_one();
  });
  return std::unique_ptr<Scheduler>(new Scheduler(std::move(impl)));
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

bool Scheduler::step() { return impl_->step({}); }

void Scheduler::run(std::stop_token stop) {
  while (!stop.stop_requested() && !impl_->lost)
    if (!impl_->step(stop)) impl_->sleep(stop);
}

SchedulerCounters Scheduler::counters() const { return impl_->counters(); }

std::optional<RanksStatus> Scheduler::ranks() const { return impl_->ranks.status(); }

std::vector<RequestState> Scheduler::requests() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<RequestState> all = impl_->shown.states();
  for (const SchedulerJob& job : impl_->waiting) all.push_back(job.state());
  return all;
}

const SchedulerOptions& Scheduler::options() const { return impl_->options; }

}  // namespace dllm
