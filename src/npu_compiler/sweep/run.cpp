#include "npu_compiler/sweep/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/thread_pool.h"
#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/sweep/finished.h"

namespace dllm::npu {
namespace {

constexpr std::int64_t kBatch = 8192;  // points between two writes to the store
constexpr std::int64_t kGrain = 32;    // points that a thread takes at once

/// Metrics as costs: smaller is better.
double cost(const SweepRow& row, std::size_t metric) {
  return sweep_metrics()[metric].larger_is_better ? -row.metrics[metric] : row.metrics[metric];
}

}  // namespace

void mark_pareto(std::vector<SweepRow>& rows, std::size_t x, std::size_t y) {
  struct Point {
    double x, y;
    SweepRow* row;
  };
  std::vector<Point> order;
  for (SweepRow& row : rows)
    if (row.error == 0 && row.over_limit < 0) order.push_back({cost(row, x), cost(row, y), &row});
  std::sort(order.begin(), order.end(),
            [](const Point& a, const Point& b) { return std::pair(a.x, a.y) < std::pair(b.x, b.y); });
  const Point* last = nullptr;
  for (const Point& point : order) {
    const bool same = last != nullptr && point.x == last->x && point.y == last->y;
    if (last != nullptr && !same && point.y >= last->y) continue;
    point.row->pareto = true;
    last = &point;
  }
}

struct SweepRunner::State {
  const SweepSpec& spec;
  SweepStore& store;
  std::unique_ptr<SweepSpace> space;
  std::unique_ptr<ThreadPool> pool;
  std::vector<PointEvaluator> evaluators;  ///< by worker
  std::vector<SweepResult> stored;         ///< sorted by hash
  struct Known {
    SweepMetrics metrics = {};
    std::uint32_t error = 0;
  };
  std::unordered_map<std::uint64_t, Known> seen;  ///< of this run
  std::unordered_map<std::string, std::uint32_t> error_index;

  std::uint32_t index_of(const std::string& error, SweepReport& report) {
    if (error.empty()) return 0;
    const auto [at, added] = error_index.try_emplace(error, static_cast<std::uint32_t>(report.errors.size()));
    if (added) report.errors.push_back(error);
    return at->second;
  }
};

SweepRunner::SweepRunner(std::unique_ptr<State> state) : state_(std::move(state)) {}
SweepRunner::SweepRunner(SweepRunner&&) noexcept = default;
SweepRunner::~SweepRunner() = default;

Expected<SweepRunner> SweepRunner::create(const SweepSpec& spec, SweepStore& store, int threads) {
  DLLM_TRY(std::unique_ptr<SweepSpace> space, SweepSpace::create(spec));
  auto state = std::unique_ptr<State>(
      new State{spec, store, std::move(space), std::make_unique<ThreadPool>(threads), {}, {}, {}, {}});
  for (int i = 0; i < threads; ++i) state->evaluators.emplace_back(*state->space);
  DLLM_TRY(state->stored, store.all());
  return SweepRunner(std::move(state));
}

Expected<void> SweepRunner::evaluate(SweepRow* rows, std::size_t count, SweepReport& report) {
  State& s = *state_;
  if (report.errors.empty()) report.errors.emplace_back();
  std::vector<std::size_t> todo;
  std::vector<std::size_t> again;  // duplicates of another point in this batch
  for (std::size_t i = 0; i < count; ++i) {
    SweepRow& row = rows[i];
    row.hash = s.space->hash(s.spec.indices(row.point));
    const auto [at, added] = s.seen.try_emplace(row.hash);
    if (!added) {
      again.push_back(i);
      continue;
    }
    const auto known = std::lower_bound(s.stored.begin(), s.stored.end(), row.hash,
                                        [](const SweepResult& r, std::uint64_t hash) { return r.hash < hash; });
    if (known == s.stored.end() || known->hash != row.hash) {
      todo.push_back(i);
      continue;
    }
    row.metrics = known->metrics;
    row.error = s.index_of(known->error, report);
    at->second = {row.metrics, row.error};
    ++(row.error == 0 ? report.reused : report.invalid);
  }
  std::vector<SweepResult> results(todo.size());
  s.pool->parallel_ranges(static_cast<std::int64_t>(todo.size()), kGrain,
                          [&](std::int64_t begin, std::int64_t end, int worker) {
                            for (std::int64_t i = begin; i < end; ++i) {
                              const SweepRow& row = rows[todo[to_size(i)]];
                              SweepResult& result = results[to_size(i)];
                              result.hash = row.hash;
                              auto metrics = s.evaluators[to_size(worker)].evaluate(s.spec.indices(row.point));
                              if (metrics)
                                result.metrics = *metrics;
                              else
                                result.error = metrics.error().message();
                            }
                          });
  if (!results.empty()) DLLM_CHECK_OK(s.store.add(results));
  for (std::size_t i = 0; i < todo.size(); ++i) {
    SweepRow& row = rows[todo[i]];
    row.metrics = results[i].metrics;
    row.error = s.index_of(results[i].error, report);
    s.seen[row.hash] = {row.metrics, row.error};
    ++(row.error == 0 ? report.evaluated : report.invalid);
  }
  for (const std::size_t i : again) {
    const State::Known& known = s.seen.at(rows[i].hash);
    rows[i].metrics = known.metrics;
    rows[i].error = known.error;
    ++(known.error == 0 ? report.duplicates : report.invalid);
  }
  return {};
}

std::int16_t over_limit(const SweepSpec& spec, const SweepRow& row) {
  const std::vector<SweepSpec::Limit>& limits = spec.limits;
  for (std::size_t l = 0; row.error == 0 && l < limits.size(); ++l) {
    const std::size_t i = metric_index(limits[l].metric);
    const double value = row.metrics[i];
    if (sweep_metrics()[i].larger_is_better ? value < limits[l].value : value > limits[l].value)
      return static_cast<std::int16_t>(l);
  }
  return -1;
}

void finish_sweep(const SweepSpec& spec, SweepReport& report) {
  for (SweepRow& row : report.rows) row.over_limit = over_limit(spec, row);
  mark_pareto(report.rows, metric_index(spec.plot_x), metric_index(spec.plot_y));
}

Expected<SweepReport> run_sweep(const SweepSpec& spec, SweepStore& store, int threads, const SweepProgress& progress,
                                SweepRange range) {
  const std::int64_t points = spec.points();
  if (range.count == 0) range.count = points - range.first;
  if (range.first < 0 || range.count < 1 || range.first > points - range.count)
    return Error{ErrorCode::kUsage,
                 fmt::format("points {} to {} of {}", range.first, range.first + range.count, points), "sweep", ""};
  const bool whole = range.count == points;
  if (whole) {
    DLLM_TRY(std::optional<SweepReport> before, finished_sweep(spec, store, threads));
    if (before) {
      if (progress) progress(points, points);
      return std::move(*before);
    }
  }
  DLLM_TRY(SweepRunner runner, SweepRunner::create(spec, store, threads));
  SweepReport report;
  report.rows.resize(to_size(range.count));
  for (std::int64_t begin = 0; begin < range.count; begin += kBatch) {
    const std::int64_t size = std::min(kBatch, range.count - begin);
    SweepRow* rows = report.rows.data() + begin;
    for (std::int64_t i = 0; i < size; ++i) rows[i].point = range.first + begin + i;
    DLLM_CHECK_OK(runner.evaluate(rows, to_size(size), report));
    if (progress && !progress(begin + size, range.count) && begin + size < range.count)
      return Error{ErrorCode::kCancelled, fmt::format("stopped after {} of {} points", begin + size, range.count), "",
                   "the same command continues from there"};
  }
  if (whole) DLLM_CHECK_OK(keep_finished_sweep(spec, store, report));
  finish_sweep(spec, report);
  return report;
}

std::string sweep_csv(const SweepSpec& spec, const SweepReport& report) {
  const auto quoted = [](std::string text) {
    if (text.find_first_of(",\"\n") == std::string::npos) return text;
    for (std::size_t i = 0; (i = text.find('"', i)) != std::string::npos; i += 2) text.insert(i, "\"");
    return "\"" + text + "\"";
  };
  std::string text;
  for (const SweepSpec::Axis& axis : spec.axes) text += quoted(axis.key) + ",";
  for (const Metric& metric : sweep_metrics()) text += fmt::format("{},", metric.name);
  text += "over_limit,pareto,hash,error\n";
  for (const SweepRow& row : report.rows) {
    for (const std::string& value : spec.at(row.point)) text += quoted(value) + ",";
    for (const double metric : row.metrics) {
      if (row.error == 0) fmt::format_to(std::back_inserter(text), "{:.9g}", metric);
      text += ',';
    }
    fmt::format_to(std::back_inserter(text), "{},{},{:016x},{}\n",
                   row.over_limit < 0 ? "" : spec.limits[to_size(row.over_limit)].metric, row.pareto ? 1 : 0, row.hash,
                   quoted(report.errors[row.error]));
  }
  return text;
}

}  // namespace dllm::npu
