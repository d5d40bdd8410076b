#include "npu_backend/timed/timed_backend.h"

#include <algorithm>
#include <utility>

#include "backend/failed_pass.h"
#include "base/integers.h"
#include "base/try.h"
#include "npu_compiler/answers/host_cpu.h"
#include "npu_core/device/device.h"

namespace dllm::npu {
namespace {

class BareKvCache final : public KvCache {
 public:
  explicit BareKvCache(Position capacity) : KvCache(capacity) {}
  using KvCache::record;

 protected:
  bool take(const KvCache&, std::span<const PositionRange>) override { return true; }  // there is only the record
};

}  // namespace

StepTotals step_totals(std::span<const SequenceStep> batch) {
  StepTotals totals{.sequences = 0};
  for (const SequenceStep& step : batch) {
    if (step.plan.rows.empty()) continue;
    ++totals.sequences;
    totals.rows += step.plan.row_count();
    totals.scored += static_cast<std::int64_t>(step.plan.scored.size());
    std::int64_t keys = 0;
    for (const PositionRange range : step.plan.visible) keys += range.size();
    totals.keys = std::max(totals.keys, keys);
  }
  return totals;
}

TimedBackend::TimedBackend(std::unique_ptr<Backend> values, const Device& device, StepTimer::GraphFactory graph,
                           const TimerOptions& options, std::shared_ptr<AnswerClock> clock, StepKind kind)
    : values_(std::move(values)),
      device_(std::make_shared<const Device>(device)),
      graph_(std::move(graph)),
      options_(options),
      clock_(std::move(clock)),
      kind_(kind) {}

Expected<std::unique_ptr<TimedBackend>> TimedBackend::create(std::unique_ptr<Backend> values, const Device& device,
                                                             StepTimer::GraphFactory graph,
                                                             const TimerOptions& options, const TimedBackend* beside,
                                                             StepKind kind) {
  auto clock = beside == nullptr ? std::make_shared<AnswerClock>(device, options.processor) : beside->clock_;
  std::unique_ptr<TimedBackend> backend(
      new TimedBackend(std::move(values), device, std::move(graph), options, std::move(clock), kind));
  DLLM_CHECK_OK(backend->timer_for({.sequences = 1, .rows = 1, .scored = 1, .keys = 1}, 1, false));
  return backend;
}

/// A larger cache than all before gets new places; the times of steps follow from them.
Expected<StepTimer*> TimedBackend::timer_for(const StepTotals& totals, Position capacity, bool slow) {
  std::unique_ptr<StepTimer>& known = timers_[slow ? 1 : 0];
  const std::int64_t keys = std::max<std::int64_t>(capacity, totals.keys);
  StepTotals most{
      .sequences = totals.sequences, .rows = std::max(totals.rows, totals.sequences * keys), .scored = 0, .keys = keys};
  if (known) {
    const StepTotals& now = known->most();
    if (now.rows >= most.rows && now.sequences * now.keys >= most.sequences * most.keys) return known.get();
    most.sequences = std::max(most.sequences, now.sequences);
    most.keys = std::max(most.keys, now.keys);
    most.rows = std::max({most.rows, now.rows, most.sequences * most.keys});
  }
  DLLM_TRY(StepTimer timer, StepTimer::create(slow ? throttled(*device_) : *device_, graph_, most, options_));
  known = std::make_unique<StepTimer>(std::move(timer));
  return known.get();
}

Expected<std::vector<Scores>> TimedBackend::forward(std::span<const SequenceStep> batch) {
  auto scores = run(batch);
  if (!scores) invalidate_rows(batch);
  return scores;
}

Expected<std::vector<Scores>> TimedBackend::run(std::span<const SequenceStep> batch) {
  const StepTotals totals = step_totals(batch);
  Position capacity = 1;
  for (const SequenceStep& step : batch) capacity = std::max(capacity, step.cache->capacity());
  StepProfile profile;
  if (totals.rows > 0) {
    DLLM_TRY(StepTimer* const timer, timer_for(totals, capacity, clock_->throttled()));
    DLLM_TRY(const StepProfile* const step, timer->profile(totals));
    profile = *step;
    if (unsimulated_.empty()) unsimulated_ = timer->unsimulated();
  }
  DLLM_TRY(std::vector<Scores> scores, values_->forward(batch));
  clock_->advance(totals, profile, kind_);
  hand_over_finished();
  return scores;
}

std::future<Expected<std::vector<Scores>>> TimedBackend::launch(SequenceStep step) {
  std::promise<Expected<std::vector<Scores>>> promise;
  auto future = promise.get_future();
  Expected<std::vector<Scores>> scores = values_->forward({&step, 1});
  if (!scores) {
    promise.set_value(std::move(scores));
    return future;
  }
  const StepTotals totals = step_totals({&step, 1});
  const Graph graph = graph_({.rows = totals.rows, .scored = totals.scored});
  const std::size_t refresh =
      clock_->launch(totals, host_stretches(graph, clock_->device(), totals.sequences, totals.keys));
  launched_.push_back({step.cache, refresh, *std::move(scores), std::move(promise)});
  return future;
}

const TimedBackend::Launched* TimedBackend::launched_on(const KvCache& cache) const {
  const auto found = std::ranges::find(launched_, &cache, &Launched::cache);
  return found == launched_.end() ? nullptr : &*found;
}

void TimedBackend::wait_for(const KvCache& cache) {
  if (const Launched* const one = launched_on(cache)) clock_->wait(one->refresh);
  hand_over_finished();
}

void TimedBackend::drop(const KvCache& cache) {
  if (const Launched* const one = launched_on(cache)) clock_->drop(one->refresh);
  hand_over_finished();
}

void TimedBackend::hand_over_finished() {
  std::erase_if(launched_, [this](Launched& one) {
    if (!clock_->finished(one.refresh)) return false;
    one.promise.set_value(std::move(one.scores));
    return true;
  });
}

Expected<double> TimedBackend::seconds(const StepTotals& totals) {
  DLLM_TRY(StepTimer* const timer, timer_for(totals, static_cast<Position>(totals.keys), false));
  DLLM_TRY(const StepTime time, timer->time(totals));
  return time.seconds();
}

Expected<LatencyTable> TimedBackend::latency_table(std::int64_t most_rows) {
  const auto step = [this](std::int64_t rows, std::int64_t keys) -> Expected<double> {
    DLLM_TRY(const double time, seconds({.sequences = 1, .rows = rows, .scored = rows, .keys = keys}));
    return time * 1e3;
  };
  const std::int64_t blen = options_.processor == StepProcessor::kHost ? 8 : device_->array.blen;
  DLLM_TRY(const double far, step(blen, most_rows * 2));
  std::vector<LatencyTable::Point> points;
  double first = 0;
  for (std::int64_t rows = 1; rows <= most_rows; rows = rows % blen == 0 ? rows + 1 : round_up(rows, blen)) {
    DLLM_TRY(const double ms, step(rows, rows));
    points.push_back({static_cast<std::int32_t>(rows), ms});
    if (rows == blen) first = ms;
  }
  const auto pairs = static_cast<double>(blen * (most_rows * 2 - blen));
  return LatencyTable(std::move(points), std::max(0.0, (far - first) / pairs));
}

ValuelessBackend::ValuelessBackend(ModelDesc desc) : desc_(std::move(desc)) {
  while (token_ == desc_.mask || std::ranges::find(desc_.stop_ids, token_) != desc_.stop_ids.end()) ++token_;
}

Expected<std::unique_ptr<KvCache>> ValuelessBackend::make_cache(Position capacity) {
  return std::unique_ptr<KvCache>(std::make_unique<BareKvCache>(capacity));
}

void ValuelessBackend::copy_rows(const KvCache& from, KvCache& to, std::span<const Position> positions) {
  std::vector<PlanRow> rows;
  for (const Position p : positions) rows.push_back({p, from.token_of(p)});
  static_cast<BareKvCache&>(to).record(rows);
}

Expected<std::vector<Scores>> ValuelessBackend::forward(std::span<const SequenceStep> batch) {
  std::vector<Scores> all;
  for (const SequenceStep& step : batch) {
    Scores& scores = all.emplace_back();
    for (const std::int32_t row : step.plan.scored) {
      scores.rows.push_back({.position = step.plan.row(row).position, .token = token_, .confidence = 0.5});
      scores.top.insert(scores.top.end(), static_cast<std::size_t>(step.request.top_tokens), {token_, 0});
    }
    scores.queried.assign(step.request.queries.size(), 0);
    static_cast<BareKvCache&>(*step.cache).record(step.plan.rows);
  }
  return all;
}

}  // namespace dllm::npu
