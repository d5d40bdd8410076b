#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/bench/bench.h"
#include "app/bench/work.h"
#include "dllm/error.h"
#include "ranks/rank_groups.h"

namespace dllm::app {

/// What every rank has done in some steps: the difference of two readings.
struct RankShares {
  std::vector<RankTimes> ranks;  ///< by rank
  GroupFacts facts;
};

/// Errors: kUsage (the model runs on one rank), those of RankGroups::times().
Expected<RankShares> read_ranks(const BenchModel& model);
RankShares operator-(const RankShares& after, const RankShares& before);

/// One record per rank: milliseconds of a step, and of a layer those of its work, of what it received, and of waiting;
/// and what the exchange would take at least, by the latency and bandwidth that were measured when the ranks met.
std::vector<nlohmann::ordered_json> rank_records(const BenchModel& model, const StepSize& size,
                                                 const RankShares& shares);

/// One record per context, rows, number of ranks and split: the predicted time of a step of one sequence, all of whose
/// rows are scored, from steps on this processor alone and the exchange that was measured or given. `group`: on ranks;
/// null: `options.exchange_us` and `exchange_mbps` are given. Errors: those of read_ranks() and of steps.
Expected<void> simulate_ranks(const BenchOptions& options, const std::string& path, BenchModel* group,
                              const BenchWatch& watch, const BenchSink& sink);

}  // namespace dllm::app
