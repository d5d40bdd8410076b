// Steps on numbers of ranks that are not there: where each split stops paying.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "app/bench/ranks.h"
#include "app/bench/stats.h"
#include "base/thread_pool.h"
#include "base/to_size.h"
#include "base/try.h"
#include "cpu/cpu_backend.h"
#include "engine/backend/cpu.h"
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
    return id == kNoId ? 0.0 : static_cast<double>(element_count(graph.weight(id).shape));
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

/// The options for one step of one sequence, all of whose rows are scored.
BenchOptions one_step(const BenchOptions& options, Position rows, Position context) {
  BenchOptions one = options;
  one.rows = {static_cast<std::int32_t>(rows)};
  one.contexts = {static_cast<std::int32_t>(context)};
  one.batches = {1};
  one.scored = "all";
  one.ranks = false;
  return one;
}

/// The steps of this processor alone. Ranks of one machine share its processors and the bandwidth of its memory: what
/// one of them takes while others compute follows from a step on as many threads as they keep busy together.
class RankSimulation {
 public:
  RankSimulation(const BenchOptions& options, BenchModel& alone, bool one_machine, const BenchWatch& watch)
      : options_(options), alone_(alone), one_machine_(one_machine), watch_(watch) {}

  /// Of a step by one rank's threads, while nothing else runs.
  Expected<StepParts> measure(Position rows, Position context) { return measure(threads(), rows, context); }

  /// Seconds of the work of the slowest rank (with layers: of all, one after the other).
  Expected<double> work(const Graph& graph, SplitKind kind, int ranks, Position rows, Position context) {
    DLLM_TRY(const StepParts whole, beside_others(ranks, rows, context, /*tight=*/true));
    const LargestPart part = largest_part(graph, kind, ranks);
    const double head = whole.head * part.tokens;
    if (kind == SplitKind::kLayers) {
      DLLM_TRY(const StepParts one, measure(rows, context));
      return one.without_head() + head;
    }
    if (kind == SplitKind::kOutputs)
      return whole.linear * part.linear + whole.attention * part.heads + whole.rest + head;
    DLLM_TRY(const StepParts own, beside_others(ranks, (rows + ranks - 1) / ranks, context, /*tight=*/false));
    return own.without_head() + head;
  }

 private:
  int threads() const { return alone_.running.threads; }

  /// Times of a step on one rank's threads while the other ranks of this machine compute the same step. With more
  /// threads than processors, threads take turns. `tight`: the ranks exchange data after every operator. Then a
  /// processor that has finished its threads' operator is idle until the last rank has finished too, so the number of
  /// turns is rounded up. Otherwise (split by rows) they exchange data once per layer and turns overlap. The number of
  /// turns is then the mean of the rounded and the exact one, which was chosen because it fits what ranks.md reports.
  Expected<StepParts> beside_others(int ranks, Position rows, Position context, bool tight) {
    const int own = threads(), wanted = ranks * own, processors = default_thread_count();
    if (!one_machine_ || ranks == 1) return measure(rows, context);
    const int busy = std::max(own, std::min(wanted, processors));
    DLLM_TRY(StepParts parts, measure(busy, rows, context));
    const int room = std::max(own, processors);  // one rank's own turns are in its measured time already
    const double whole = std::max(1, (wanted + room - 1) / room);
    const double shared = std::max(1.0, static_cast<double>(wanted) / room);
    // All `busy` threads do a step in this time, of which one rank's threads would do their share.
    const double slower = (tight ? whole : (whole + shared) / 2) * busy / own;
    for (double* const one : {&parts.linear, &parts.attention, &parts.head, &parts.rest}) *one *= slower;
    return parts;
  }

  Expected<StepParts> measure(int threads_used, Position rows, Position context) {
    const std::tuple key(threads_used, rows, context);
    if (const auto known = steps_.find(key); known != steps_.end()) return known->second;
    const BenchOptions options = one_step(options_, rows, context);
    DLLM_TRY(BenchModel* const model, model_of(threads_used));
    MaybePeaks none;
    StepParts parts;
    const auto read = [&](const SimulateJson& record) {
      for (const auto& [name, entry] : record.at("operators").items()) {
        const double seconds = 1e-3 * entry.at("ms").get<double>();
        // Products and the gated unit after them run as one: "linear+glu".
        const bool products = name.find("linear") != std::string::npos || name == "experts";
        (products               ? parts.linear
         : name == "attention"  ? parts.attention
         : name == "score_head" ? parts.head
                                : parts.rest) += seconds;
      }
      // Operators have means, which a few disturbed steps lengthen.
      const double typical = 1e-3 * record.at("ms").at("median").get<double>() / std::max(1e-9, parts.all());
      for (double* const one : {&parts.linear, &parts.attention, &parts.head, &parts.rest}) *one *= typical;
    };
    DLLM_CHECK_OK(bench_steps(*model, options, none, watch_, read));
    return steps_.emplace(key, parts).first->second;
  }

  /// The model with so many threads, which shares the weights of the one that there is.
  Expected<BenchModel*> model_of(int threads_used) {
    auto* const own = dynamic_cast<CpuBackend*>(alone_.running.backend.get());
    if (threads_used == threads()) return &alone_;
    if (own == nullptr)
      return Error{ErrorCode::kUnsupported, "steps on other numbers of threads are the CPU backend's", "--simulate",
                   ""};
    BenchModel& made = busy_[threads_used];
    if (made.running.backend) return &made;
    DLLM_TRY(std::unique_ptr<CpuBackend> backend, own->beside(threads_used));
    made.path = alone_.path;
    made.model = alone_.model;
    made.profile = std::make_unique<cpu::Profile>();
    backend->set_profile(made.profile.get());
    made.running.threads = threads_used;
    made.running.backend = std::move(backend);
    return &made;
  }

  const BenchOptions& options_;
  BenchModel& alone_;
  bool one_machine_;
  const BenchWatch& watch_;
  std::map<int, BenchModel> busy_;                                  ///< by threads
  std::map<std::tuple<int, Position, Position>, StepParts> steps_;  ///< by threads, rows and context
};

struct Predicted {
  double work_s = 0, exchange_s = 0;
  double all() const { return work_s + exchange_s; }
};

/// Seconds of the exchanges of the rank that has the most.
double exchange_of(const Model& model, const Graph& graph, SplitKind kind, int ranks, const Exchange& exchange,
                   const CpuOptions& cpu) {
  double most = 0;
  for (const int rank : {0, ranks - 1}) {
    const StepExchange moved = step_exchange(model, split_graph(graph, {kind, rank, ranks}), rank, ranks, cpu);
    most = std::max(most, exchange.seconds(moved.gathers, moved.bytes, ranks));
  }
  return most;
}

/// The median milliseconds of a step on the group's ranks.
Expected<double> measured_ms(const BenchOptions& options, BenchModel& group, Position rows, Position context,
                             const BenchWatch& watch) {
  MaybePeaks none;
  double median = 0;
  DLLM_CHECK_OK(bench_steps(group, one_step(options, rows, context), none, watch, [&](const SimulateJson& record) {
    if (record.at("test") == "step") median = record.at("ms").at("median").get<double>();
  }));
  return median;
}

/// What the exchange costs, and between how many ranks.
struct KnownExchange {
  GroupFacts facts{};
  int ranks = 2;
};

Expected<KnownExchange> known_exchange(const BenchOptions& options, const BenchModel* group) {
  KnownExchange known;
  if (group != nullptr) {
    DLLM_TRY(const RankShares shares, read_ranks(*group));
    return KnownExchange{shares.facts, static_cast<int>(shares.ranks.size())};
  }
  known.facts.latency_s = 1e-6 * options.exchange_us;
  known.facts.seconds_per_byte = 1e-6 / options.exchange_mbps;
  return known;
}

/// The table of one number of rows and one context.
class SimulatedTable {
 public:
  SimulatedTable(const BenchOptions& options, BenchModel& alone, BenchModel* group, const KnownExchange& known,
                 const BenchWatch& watch)
      : options_(options),
        alone_(alone),
        group_(group),
        known_(known),
        watch_(watch),
        simulation_(options, alone, known.facts.one_machine, watch),
        cpu_(cpu_options(options.load)),
        ranks_(options.simulate) {
    std::ranges::sort(ranks_);  // a number of ranks pays if it is faster than all smaller ones
    ranks_.erase(std::unique(ranks_.begin(), ranks_.end()), ranks_.end());
  }

  Expected<void> run(Position rows, Position context, const BenchSink& sink) {
    const Graph graph = alone_.model->build({rows, rows});
    const Exchange exchange(known_.facts.latency_s, known_.facts.seconds_per_byte, known_.ranks);
    std::map<SplitKind, double> best;
    DLLM_TRY(const StepParts one, simulation_.measure(rows, context));
    for (const std::int32_t ranks : ranks_)
      for (const SplitKind kind : {SplitKind::kRows, SplitKind::kOutputs, SplitKind::kLayers}) {
        if (kind == SplitKind::kRows && ranks > rows) continue;
        Predicted step;
        DLLM_TRY(step.work_s, simulation_.work(graph, kind, ranks, rows, context));
        step.exchange_s = exchange_of(*alone_.model, graph, kind, ranks, exchange, cpu_);
        double& least = best.try_emplace(kind, one.all()).first->second;
        const bool pays = ranks > 1 && step.all() < least;
        least = std::min(least, step.all());
        SimulateJson record = {{"test", "simulate"}};
        record.update(alone_.describe());
        record["rows"] = rows;
        record["context"] = context;
        record["ranks"] = ranks;
        record["split"] = split_name(kind);
        record["alone_ms"] = 1e3 * one.all();
        record["work_ms"] = 1e3 * step.work_s;
        record["exchange_ms"] = 1e3 * step.exchange_s;
        record["step_ms"] = 1e3 * step.all();
        record["times_alone"] = one.all() / step.all();
        record["pays"] = ranks == 1 ? "" : pays ? "yes" : "no";
        DLLM_CHECK_OK(compare(kind, ranks, rows, context, record));
        sink(record);
      }
    return {};
  }

 private:
  /// Adds the exchange, and what such a step takes if the group is of this kind.
  Expected<void> compare(SplitKind kind, int ranks, Position rows, Position context, SimulateJson& record) {
    const GroupFacts& facts = known_.facts;
    record["latency_us"] = 1e6 * facts.latency_s;
    record["exchange_mbps"] = facts.seconds_per_byte > 0 ? 1e-6 / facts.seconds_per_byte : 0.0;
    if (group_ == nullptr || ranks != known_.ranks || kind != facts.split) return {};
    DLLM_TRY(const double measured, measured_ms(options_, *group_, rows, context, watch_));
    record["measured_ms"] = measured;
    record["deviation_percent"] = 100 * (record.at("step_ms").get<double>() / measured - 1);
    return {};
  }

  const BenchOptions& options_;
  BenchModel& alone_;
  BenchModel* group_;
  const KnownExchange& known_;
  const BenchWatch& watch_;
  RankSimulation simulation_;
  CpuOptions cpu_;
  std::vector<std::int32_t> ranks_;
};

}  // namespace

Expected<void> simulate_ranks(const BenchOptions& options, const std::string& path, BenchModel* group,
                              const BenchWatch& watch, const BenchSink& sink) {
  DLLM_TRY(const KnownExchange known, known_exchange(options, group));
  LoadOptions load = options.load;
  load.backend.clear();
  load.backend_options.clear();
  load.draft_model.clear();  // steps are the model's
  load.lora_draft.clear();
  DLLM_TRY(BenchModel alone, BenchModel::open(path, load));
  SimulatedTable table(options, alone, group, known, watch);
  std::set<std::pair<Position, Position>> seen;  // contexts below the rows are the same
  for (const Position context : options.contexts)
    for (const Position rows : options.rows) {
      const std::pair step(rows, std::max(rows, context));
      if (seen.insert(step).second) DLLM_CHECK_OK(table.run(step.first, step.second, sink));
    }
  return {};
}

}  // namespace dllm::app
