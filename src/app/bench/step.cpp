#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <nlohmann/json.hpp>
#include <set>

#include "app/bench/bench.h"
#include "app/bench/host.h"
#include "app/bench/ranks.h"
#include "app/bench/stats.h"
#include "app/bench/work.h"
#include "app/cli/flags.h"
#include "base/try.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr Position kFillRows = 128;  // per pass while the cache is filled: enough for the matrices' full rate

class StepBench {
 public:
  StepBench(BenchModel& model, const BenchOptions& options, MaybePeaks& peaks, const BenchWatch& watch)
      : model_(model), options_(options), peaks_(peaks), watch_(watch), desc_(model.model->desc()) {}

  Expected<void> fill(std::int32_t sequences, Position capacity) {
    for (std::int32_t s = 0; s < sequences; ++s) {
      DLLM_TRY(auto cache, model_.backend().make_cache(capacity));
      caches_.push_back(std::move(cache));
      for (Position begin = 0; begin < capacity; begin += kFillRows) {
        if (watch_.stop.stop_requested()) return Error{ErrorCode::kCancelled, "the benchmark was interrupted", "", ""};
        const Position end = std::min<Position>(capacity, begin + kFillRows);
        tell(fmt::format("filling cache {} of {}, position {} of {}", s + 1, sequences, begin, capacity));
        const SequenceStep step = make_step(s, begin, end, 0);
        DLLM_TRY(const auto scores, model_.backend().forward({&step, 1}));
      }
    }
    return {};
  }

  /// The record of the step, then those of its ranks.
  Expected<std::vector<Json>> run(std::int32_t batch, Position rows, Position context) {
    DLLM_TRY(const std::int32_t scored, scored_rows(rows));
    tell(fmt::format("step of {} x {} rows, context {}, {} threads", batch, rows, context, model_.running.threads));
    std::vector<SequenceStep> steps;
    for (std::int32_t s = 0; s < batch; ++s) steps.push_back(make_step(s, context - rows, context, scored));
    const auto forward = [&]() -> Expected<void> {
      DLLM_TRY(const auto scores, model_.backend().forward(steps));
      return {};
    };
    Expected<RankShares> before = RankShares();
    DLLM_TRY(const auto samples, repeat(options_, watch_, forward, [&] {
               model_.profile->clear();
               if (options_.ranks) before = read_ranks(model_);
             }));
    DLLM_CHECK_OK(raise_peaks());
    std::vector<double> timed = samples;
    if (model_.running.profile) {
      DLLM_TRY(timed, time_operators(forward));
    }
    std::vector<Json> records = {record({batch, rows, context, scored}, samples, timed)};
    if (!options_.ranks) return records;
    DLLM_TRY(const RankShares begin, std::move(before));
    DLLM_TRY(const RankShares end, read_ranks(model_));
    for (Json& one : rank_records(model_, {batch, rows, context, scored}, end - begin))
      records.push_back(std::move(one));
    return records;
  }

 private:
  /// The machine's speed changes with its clocks and other load, so a case is compared with the best peak measured so
  /// far, including right before and right after it.
  Expected<void> raise_peaks() {
    resident_ = std::max(resident_, peak_resident_bytes());
    if (!peaks_) return {};
    DLLM_CHECK_OK(peaks_->again());
    reset_peak_resident();  // of the measurement's memory
    return {};
  }

  void tell(const std::string& what) const {
    if (watch_.progress) watch_.progress(what);
  }

  Expected<std::int32_t> scored_rows(Position rows) const {
    if (options_.scored == "all") return rows;
    if (options_.scored == "none") return 0;
    const auto number = parse_number<std::int32_t>(options_.scored);
    if (!number || *number < 0)
      return Error{ErrorCode::kUsage, fmt::format("'{}' is not a valid number of rows", options_.scored), "--scored",
                   "all, none or a number"};
    return std::min(*number, rows);
  }

  SequenceStep make_step(std::int32_t sequence, Position begin, Position end, std::int32_t scored) const {
    SequenceStep step;
    step.cache = caches_[static_cast<std::size_t>(sequence)].get();
    const std::uint64_t seed = options_.generate.seed.value_or(0) + static_cast<std::uint64_t>(sequence);
    for (Position p = begin; p < end; ++p) step.plan.rows.push_back({p, bench_token(desc_, seed, p)});
    for (std::int32_t i = 0; i < scored; ++i) step.plan.scored.push_back(i);
    step.plan.visible = {{0, end}};
    step.plan.causal_block = desc_.causal_block;
    return step;
  }

  /// Seconds of some steps whose operators a device times, which lengthens them.
  Expected<std::vector<double>> time_operators(const std::function<Expected<void>()>& forward) const {
    model_.running.profile(model_.profile.get());
    BenchOptions few = options_;
    few.warmup = 1, few.repetitions = 3, few.min_seconds = 0;
    DLLM_TRY(std::vector<double> timed, repeat(few, watch_, forward, [&] { model_.profile->clear(); }));
    model_.running.profile(nullptr);
    return timed;
  }

  /// `timed`: the seconds of the steps in the profile.
  Json record(const StepSize& size, const std::vector<double>& samples, const std::vector<double>& timed) const {
    const Graph graph = model_.model->build(size.shape());
    const StepWork work = work_of(graph, model_.model->weights(), desc_, size);
    const double median = summarize(samples).median;
    Json json = {{"test", "step"}};
    json.update(model_.describe());
    json["activations"] = options_.load.activations.empty() ? "int8" : options_.load.activations;
    json["seed"] = options_.generate.seed.value_or(0);
    json["batch"] = size.sequences;
    json["rows"] = size.rows;
    json["context"] = size.keys;
    json["scored"] = size.scored;
    json["repetitions"] = samples.size();
    json["ms"] = summary_json(samples, 1e3);
    json["rows_per_second"] = static_cast<double>(size.shape().rows) / median;
    json["gop"] = work.ops() / 1e9;
    json["gops"] = work.ops() / 1e9 / median;
    json["weight_gb"] = work.weight_bytes / 1e9;
    json["weight_gbps"] = work.weight_bytes / 1e9 / median;
    if (peaks_) add_bounds(work, median, main_type(graph, model_.model->weights()), json);
    json["operators"] = operators(timed);
    json["peak_rss_bytes"] = resident_;
    return json;
  }

  void add_bounds(const StepWork& work, double median, TensorType type, Json& json) const {
    const RunningBackend& running = model_.running;
    const cpu::Peaks::Rate& bound =
        bound_of(peaks_->best, {type, options_.load.activations, running.arithmetic, running.isa});
    if (bound.per_second > 0) {
      json["peak_gops"] = bound.per_second / 1e9;
      json["peak_instruction"] = bound.instruction;
      json["peak_percent"] = 100 * work.ops() / median / bound.per_second;
    }
    json["read_gbps"] = peaks_->best.read_bytes_per_second / 1e9;
    json["read_percent"] = 100 * work.weight_bytes / median / peaks_->best.read_bytes_per_second;
  }

  /// Mean milliseconds per step and share of each kind of operator, and of the time between operators; empty for
  /// backends that do not time them.
  Json operators(const std::vector<double>& samples) const {
    if (model_.profile->entries().empty()) return Json::object();
    double total = 0, rest = 0;
    for (const double sample : samples) total += sample;
    rest = total;
    const auto steps = static_cast<double>(samples.size());
    Json json = Json::object();
    const auto add = [&](const std::string& name, double seconds) {
      json[name] = {{"ms", seconds * 1e3 / steps}, {"percent", 100 * seconds / total}};
    };
    for (const auto& [name, entry] : model_.profile->entries()) {
      add(name, entry.seconds);
      rest -= entry.seconds;
    }
    add("between", std::max(0.0, rest));
    return json;
  }

  BenchModel& model_;
  const BenchOptions& options_;
  MaybePeaks& peaks_;
  std::int64_t resident_ = 0;  ///< bytes, without the measurements of peaks
  const BenchWatch& watch_;
  const ModelDesc& desc_;
  std::vector<std::unique_ptr<KvCache>> caches_;  ///< by sequence
};

}  // namespace

Expected<void> bench_steps(BenchModel& model, const BenchOptions& options, MaybePeaks& peaks, const BenchWatch& watch,
                           const BenchSink& sink) {
  // In the given order; a context below the rows means a step without cached positions, so several may be the same.
  struct Case {
    std::int32_t batch;
    Position rows, context;
    auto operator<=>(const Case&) const = default;
  };
  std::vector<Case> cases;
  std::set<Case> seen;
  Position capacity = 0;
  for (const std::int32_t batch : options.batches)
    for (const Position context : options.contexts)
      for (const Position rows : options.rows) {
        const Case next{batch, rows, std::max(rows, context)};
        if (!seen.insert(next).second) continue;
        cases.push_back(next);
        capacity = std::max(capacity, next.context);
      }
  if (capacity > model.model->desc().context_length)
    return Error{ErrorCode::kUsage,
                 fmt::format("{} positions exceed the context of {}", capacity, model.model->desc().context_length),
                 "--context", "give smaller --rows and --context"};
  StepBench bench(model, options, peaks, watch);
  DLLM_CHECK_OK(bench.fill(*std::max_element(options.batches.begin(), options.batches.end()), capacity));
  for (const auto& [batch, rows, context] : cases) {
    DLLM_TRY(const std::vector<Json> records, bench.run(batch, rows, context));
    for (const Json& record : records) sink(record);
  }
  return {};
}

}  // namespace dllm::app
