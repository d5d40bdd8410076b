// Steps on numbers of ranks that are not there: where each split stops paying.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "app/bench/ranks.h"
#include "app/bench/stats.h"
#include "base/thread_pool.h"
#include "base/to_size.h"
#include "base/try.h"
#include "engine/backend/ranks_setup.h"
#include "graph/split.h"

namespace dllm::app {
namespace {

using SimulateJson = nlohmann::ordered_json;

/// Seconds of a step on this processor alone, by what a split divides.
struct StepParts {
  double linear = 0;     ///< matrices, experts too: by their outputs
  double attention = 0;  ///< by heads
  double head = 0;       ///< by tokens
  double rest = 0;       ///< of every rank that has the rows

  double all() const { return linear + attention + head + rest; }
  double without_head() const { return linear + attention + rest; }
};

/// The largest part of a rank, of everything.
struct LargestPart {
  double linear = 0, heads = 0, tokens = 0;
};

LargestPart sizes_of(const Graph& graph) {
  LargestPart sizes;
  const auto elements = [&](WeightId id) {
    return id == kNoId ? 0.0 : static_cast<double>(element_count(graph.weights[to_size(id)].shape));
  };
  for (const Op& op : graph.ops) {
    if (const auto* o = std::get_if<op::Linear>(&op)) sizes.linear += elements(o->weight);
    if (const auto* o = std::get_if<op::Experts>(&op))
      for (const WeightId id : {o->gate, o->up, o->down}) sizes.linear += elements(id);
    if (const auto* o = std::get_if<op::Attention>(&op)) sizes.heads += static_cast<double>(o->heads);
    if (const auto* o = std::get_if<op::ScoreHead>(&op)) sizes.tokens += elements(o->weight);
  }
  return sizes;
}

LargestPart largest_part(const Graph& graph, SplitKind kind, int ranks) {
  const LargestPart whole = sizes_of(graph);
  LargestPart most;
  for (const int rank : {0, ranks - 1}) {  // the first ranks get what cannot be divided; the last may have a layer more
    const LargestPart own = sizes_of(split_graph(graph, {kind, rank, ranks}).graph);
    most.linear = std::max(most.linear, own.linear / std::max(1.0, whole.linear));
    most.heads = std::max(most.heads, own.heads / std::max(1.0, whole.heads));
    most.tokens = std::max(most.tokens, own.tokens / std::max(1.0, whole.tokens));
  }
  return most;
}

/// Exchanges by the number of ranks. Two send at the same time. Of more, rank 0 passes on what the others send: its
/// messages, and the bytes of its connection, grow with their number.
class Exchange {
 public:
  /// Between `ranks` ranks, of which one receives a byte in `seconds_per_byte`.
  Exchange(double latency_s, double seconds_per_byte, int ranks)
      : message_s_(latency_s / std::max(1, ranks - 1)), byte_s_(seconds_per_byte / std::max(1, ranks - 1)) {}

  double seconds(double gathers, double received, int ranks) const {
    return ranks == 1 ? 0 : gathers * message_s_ * (ranks - 1) + received * byte_s_ * (ranks - 1);
  }

 private:
  double message_s_, byte_s_;
};

class RankSimulation {
 public:
  RankSimulation(const BenchOptions& options, BenchModel& alone, const BenchWatch& watch)
      : options_(options), alone_(alone), watch_(watch) {}

  /// Of a step with this many rows, all scored.
  Expected<StepParts> measure(Position rows) {
    if (const auto known = steps_.find(rows); known != steps_.end()) return known->second;
    BenchOptions options = options_;
    options.rows = {static_cast<std::int32_t>(rows)};
    options.ranks = false;
    MaybePeaks none;
    StepParts parts;
    const auto read = [&](const SimulateJson& record) {
      for (const auto& [name, entry] : record.at("operators").items()) {
        const double seconds = 1e-3 * entry.at("ms").get<double>();
        (name == "linear" || name == "experts" ? parts.linear
         : name == "attention"                 ? parts.attention
         : name == "score_head"                ? parts.head
                                               : parts.rest) += seconds;
      }
    };
    DLLM_CHECK_OK(bench_steps(alone_, options, none, watch_, read));
    return steps_.emplace(rows, parts).first->second;
  }

  /// Seconds of the work of the slowest rank (with layers: of all, one after the other).
  Expected<double> work(const Graph& graph, SplitKind kind, int ranks, Position rows) {
    DLLM_TRY(const StepParts whole, measure(rows));
    const LargestPart part = largest_part(graph, kind, ranks);
    const double head = whole.head * part.tokens;
    if (kind == SplitKind::kLayers) return whole.without_head() + head;
    if (kind == SplitKind::kOutputs)
      return whole.linear * part.linear + whole.attention * part.heads + whole.rest + head;
    DLLM_TRY(const StepParts own, measure((rows + ranks - 1) / ranks));
    return own.without_head() + head;
  }

 private:
  const BenchOptions& options_;
  BenchModel& alone_;
  const BenchWatch& watch_;
  std::map<Position, StepParts> steps_;
};

struct Predicted {
  double work_s = 0, exchange_s = 0;
  double all() const { return work_s + exchange_s; }
};

/// How many times slower a rank of a machine is that all of them share.
double crowding(const BenchOptions& options, bool one_machine, int ranks) {
  const double wanted = static_cast<double>(ranks) * options.load.threads;
  return one_machine ? std::max(1.0, wanted / default_thread_count()) : 1.0;
}

double exchange_of(const Graph& graph, SplitKind kind, int ranks, const Exchange& exchange, double code_bytes) {
  double most = 0;
  for (const int rank : {0, ranks - 1}) {
    const RankGraph part = split_graph(graph, {kind, rank, ranks});
    const auto gathers = static_cast<double>(
        std::ranges::count_if(part.graph.ops, [](const Op& op) { return std::holds_alternative<op::Gather>(op); }));
    // The LM head's reduction: two exchanges of little.
    most = std::max(
        most,
        exchange.seconds(gathers + 2, static_cast<double>(gathered_bytes(part, rank, ranks, 2.0, code_bytes)), ranks));
  }
  return most;
}

/// The median milliseconds of a step on the group's ranks.
Expected<double> measured_ms(const BenchOptions& options, BenchModel& group, Position rows, const BenchWatch& watch) {
  BenchOptions own = options;
  own.rows = {static_cast<std::int32_t>(rows)};
  own.ranks = false;
  MaybePeaks none;
  double median = 0;
  DLLM_CHECK_OK(bench_steps(group, own, none, watch, [&](const SimulateJson& record) {
    if (record.at("test") == "step") median = record.at("ms").at("median").get<double>();
  }));
  return median;
}

}  // namespace

Expected<void> simulate_ranks(const BenchOptions& options, const std::string& path, BenchModel* group,
                              const BenchWatch& watch, const BenchSink& sink) {
  LoadOptions load = options.load;
  load.backend.clear();
  load.backend_options.clear();
  DLLM_TRY(BenchModel alone, BenchModel::open(path, load));
  GroupFacts facts;
  int known = 2;
  if (group != nullptr) {
    facts = group->running.ranks->facts();
    known = group->running.ranks->status().ranks;
  } else {
    facts.latency_s = 1e-6 * options.exchange_us;
    facts.seconds_per_byte = 1e-6 / options.exchange_mbps;
  }
  const Exchange exchange(facts.latency_s, facts.seconds_per_byte, known);
  RankSimulation simulation(options, alone, watch);
  const Weights& weights = alone.model->weights();
  const Graph shape = alone.model->build({1, 1});
  const bool coded = codec(main_type(shape, weights)).is_block() && options.load.activations != "f32";
  for (const std::int32_t rows : options.rows) {
    const Graph graph = alone.model->build({rows, rows});
    std::map<SplitKind, double> best;
    DLLM_TRY(const StepParts one, simulation.measure(rows));
    for (const std::int32_t ranks : options.simulate)
      for (const SplitKind kind : {SplitKind::kRows, SplitKind::kOutputs, SplitKind::kLayers}) {
        if (kind == SplitKind::kRows && ranks > rows) continue;
        Predicted step;
        DLLM_TRY(step.work_s, simulation.work(graph, kind, ranks, rows));
        step.work_s *= crowding(options, facts.one_machine, ranks);
        step.exchange_s = exchange_of(graph, kind, ranks, exchange, coded ? 1.125 : 4.0);
        double& least = best.try_emplace(kind, one.all()).first->second;
        const bool pays = ranks > 1 && step.all() < least;
        least = std::min(least, step.all());
        SimulateJson record = {{"test", "simulate"}};
        record.update(alone.describe());
        record["rows"] = rows;
        record["ranks"] = ranks;
        record["split"] = split_name(kind);
        record["alone_ms"] = 1e3 * one.all();
        record["work_ms"] = 1e3 * step.work_s;
        record["exchange_ms"] = 1e3 * step.exchange_s;
        record["step_ms"] = 1e3 * step.all();
        record["times_alone"] = one.all() / step.all();
        record["pays"] = ranks == 1 ? "" : pays ? "yes" : "no";
        record["latency_us"] = 1e6 * facts.latency_s;
        record["exchange_mbps"] = facts.seconds_per_byte > 0 ? 1e-6 / facts.seconds_per_byte : 0.0;
        if (group != nullptr && ranks == known && kind == facts.split) {
          DLLM_TRY(const double measured, measured_ms(options, *group, rows, watch));
          record["measured_ms"] = measured;
          record["deviation_percent"] = 100 * (1e3 * step.all() / measured - 1);
        }
        sink(record);
      }
  }
  return {};
}

}  // namespace dllm::app
