#include "app/bench/ranks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/to_size.h"
#include "base/try.h"
#include "engine/backend/ranks_setup.h"

namespace dllm::app {

Expected<RankShares> read_ranks(const BenchModel& model) {
  RankGroups* const groups = model.running.ranks;
  if (groups == nullptr)
    return Error{ErrorCode::kUsage, "the model runs on one rank", "--ranks",
                 "give --backend ranks --workers HOST:PORT,..."};
  RankShares shares;
  DLLM_TRY(shares.ranks, groups->times());
  shares.facts = groups->facts();
  return shares;
}

RankShares operator-(const RankShares& after, const RankShares& before) {
  RankShares difference = after;
  for (std::size_t r = 0; r < difference.ranks.size(); ++r) {
    RankTimes& d = difference.ranks[r];
    const RankTimes& b = before.ranks[r];
    d.passes -= b.passes, d.gathers -= b.gathers, d.bytes -= b.bytes;
    d.pass_s -= b.pass_s, d.wait_s -= b.wait_s, d.move_s -= b.move_s;
  }
  return difference;
}

std::vector<nlohmann::ordered_json> rank_records(const BenchModel& model, const StepSize& size,
                                                 const RankShares& shares) {
  std::vector<nlohmann::ordered_json> records;
  const auto layers = static_cast<double>(model.model->desc().layers);
  for (std::size_t r = 0; r < shares.ranks.size(); ++r) {
    const RankTimes& t = shares.ranks[r];
    const auto steps = static_cast<double>(std::max<std::uint64_t>(t.passes, 1));
    const auto of_layer = [&](double seconds) { return 1e3 * seconds / steps / layers; };
    const double bound = static_cast<double>(t.gathers) * shares.facts.latency_s +
                         static_cast<double>(t.bytes) * shares.facts.seconds_per_byte;
    nlohmann::ordered_json record = {{"test", "ranks"}};
    record.update(model.describe());
    record["batch"] = size.sequences;
    record["rows"] = size.rows;
    record["context"] = size.keys;
    record["scored"] = size.scored_rows();
    record["split"] = split_name(shares.facts.split);
    record["rank"] = r;
    record["ranks"] = shares.ranks.size();
    record["layers"] = model.model->desc().layers;
    record["repetitions"] = t.passes;
    record["step_ms"] = 1e3 * t.pass_s / steps;
    record["compute_ms"] = of_layer(std::max(0.0, t.pass_s - t.wait_s - t.move_s));
    record["gather_ms"] = of_layer(t.move_s);
    record["wait_ms"] = of_layer(t.wait_s);
    record["bound_ms"] = of_layer(bound);
    record["gathers"] = static_cast<double>(t.gathers) / steps;
    record["received_mb"] = 1e-6 * static_cast<double>(t.bytes) / steps;
    record["latency_us"] = 1e6 * shares.facts.latency_s;
    record["exchange_mbps"] = shares.facts.seconds_per_byte > 0 ? 1e-6 / shares.facts.seconds_per_byte : 0.0;
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace dllm::app
