#include "backend/measure_latency.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/try.h"

namespace dllm {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Measurement {
 public:
  Measurement(Backend& backend, const LatencyOptions& options)
      : backend_(backend), options_(options), clock_(options.clock ? options.clock : steady_seconds) {}

  Expected<LatencyTable> run() {
    deadline_ = clock_() + options_.budget_seconds;
    const ModelDesc& desc = backend_.desc();
    const std::int64_t longest = desc.context_length > 0 ? desc.context_length : options_.max_context;
    capacity_ = static_cast<Position>(std::max<std::int64_t>(1, std::min<std::int64_t>(longest, options_.max_context)));
    DLLM_TRY(cache_, backend_.make_cache(capacity_));
    DLLM_TRY(const double warm_up, step(0, 1));  // warm-up: page faults, the arena's first growth
    (void)warm_up;
    std::vector<LatencyTable::Point> points;
    const Position largest = std::min(options_.max_rows, capacity_);
    for (Position rows = 1; rows <= largest; rows *= 2) {
      // At worst the cost is proportional to the rows: then twice as many take twice as long.
      if (!points.empty() && !fits(2 * points.back().ms / 1e3)) break;
      DLLM_TRY(const double seconds, best(0, rows));
      points.push_back({rows, seconds * 1e3});
    }
    LatencyTable table(points, 0);
    DLLM_TRY(const double ms_per_pair, context_cost(table));
    return LatencyTable(std::move(points), ms_per_pair);
  }

 private:
  bool fits(double seconds) const { return clock_() + seconds <= deadline_; }

  /// Seconds of a step of the rows [begin, begin + rows) that see all earlier positions.
  Expected<double> step(Position begin, Position rows) {
    if (options_.stop.stop_requested()) return Error{ErrorCode::kCancelled, "the measurement was interrupted", "", ""};
    const ModelDesc& desc = backend_.desc();
    SequenceStep work;
    work.cache = cache_.get();
    for (Position p = begin; p < begin + rows; ++p) {
      work.plan.rows.push_back({p, static_cast<TokenId>(p % std::max<std::int64_t>(1, desc.vocab))});
      work.plan.scored.push_back(p - begin);
    }
    work.plan.visible = {{0, begin + rows}};
    work.plan.causal_block = desc.causal_block;
    const double start = clock_();
    DLLM_TRY(const auto scores, backend_.forward({&work, 1}));
    return clock_() - start;
  }

  Expected<double> best(Position begin, Position rows) {
    DLLM_TRY(double fastest, step(begin, rows));
    for (std::int32_t i = 1; i < options_.repetitions && fits(fastest); ++i) {
      DLLM_TRY(const double seconds, step(begin, rows));
      fastest = std::min(fastest, seconds);
    }
    return fastest;
  }

  /// Milliseconds per row and visible position beyond the rows themselves, from one step after a filled cache.
  Expected<double> context_cost(const LatencyTable& table) {
    const Position chunk = table.points().back().rows, rows = std::min<Position>(32, chunk);
    Position filled = 0;
    while (filled + rows < capacity_) {
      const Position count = std::min(chunk, capacity_ - rows - filled);
      if (!fits(table.estimate_ms(count, filled + count) / 1e3)) break;
      DLLM_TRY(const double unused, step(filled, count));
      (void)unused;
      filled += count;
    }
    if (filled == 0 || !fits(table.estimate_ms(rows, filled) / 1e3)) return 0.0;
    DLLM_TRY(const double seconds, best(filled, rows));
    const double more = seconds * 1e3 - table.estimate_ms(rows, rows);
    return std::max(0.0, more / (static_cast<double>(rows) * static_cast<double>(filled)));
  }

  Backend& backend_;
  const LatencyOptions& options_;
  std::function<double()> clock_;
  double deadline_ = 0;
  Position capacity_ = 0;
  std::unique_ptr<KvCache> cache_;
};

}  // namespace

Expected<LatencyTable> measure_latency(Backend& backend, const LatencyOptions& options) {
  return Measurement(backend, options).run();
}

}  // namespace dllm
