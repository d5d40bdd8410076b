#include "decode/loop/second_path.h"

#include <algorithm>
#include <chrono>

#include "base/to_size.h"
#include "base/try.h"
#include "decode/loop/second_path_options.h"
#include "decode/option_row.h"

namespace dllm {

OptionRows<SecondPathOptions> second_path_rows() {
  using O = SecondPathOptions;
  return {
      option("refresh_merge", &O::refresh_merge, {{"fixed", O::Merge::kFixed}, {"ready", O::Merge::kReady}},
             "results are used after --merge-delay steps (the same tokens in every run), or as soon as they are ready"),
      option("merge_delay", &O::merge_delay, 0, kMostInteger, "steps",
             "steps from the launch until its results are merged")
          .only("with --refresh-merge fixed", [](const O& o) { return o.refresh_merge == O::Merge::kFixed; }),
      option("refresh_threads", &O::refresh_threads, 1, 1024, "threads",
             "threads of the second path, in addition to --threads"),
  };
}

// The pass writes to the side buffer, whose owner may be destroyed next.
SecondPath::~SecondPath() {
  if (!running_.valid()) return;
  config_.runner->drop(*config_.cache);
  running_.wait();
}

void SecondPath::snapshot(const KvCache& main) {
  std::vector<Position> rows;
  for (Position p = 0; p < main.capacity(); ++p)
    if (main.holds(p) && main.epoch_of(p) > copied_) rows.push_back(p);
  // The rows that the last pass wrote over the copies.
  for (const PlanRow& row : launched_.step.plan.rows)
    if (main.holds(row.position)) rows.push_back(row.position);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  config_.runner->copy_rows(main, *config_.cache, rows);
  copied_ = main.epoch();
}

void SecondPath::launch(Launch launch, const Canvas& canvas, const KvCache& main, std::int64_t now) {
  snapshot(main);
  launched_ = std::move(launch);
  launched_at_ = now;
  epochs_.clear();
  for (const PlanRow& row : launched_.step.plan.rows) epochs_.push_back(main.epoch_of(row.position));
  tokens_.clear();
  for (Position p = 0; p < canvas.size(); ++p) tokens_.push_back(canvas.token(p));
  launched_.step.cache = config_.cache;
  running_ = config_.runner->start(launched_.step);
}

bool SecondPath::due(std::int64_t now) const {
  if (!busy()) return false;
  if (config_.when_ready) return running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  return now - launched_at_ >= config_.delay;
}

Expected<SecondPath::Result> SecondPath::collect(const Canvas& canvas, KvCache& main) {
  config_.runner->wait_for(*config_.cache);
  DLLM_TRY(std::vector<Scores> scores, running_.get());
  Result result{launched_, std::move(scores.front()), {}};
  std::vector<Position> rows;
  const std::vector<PlanRow>& made = launched_.step.plan.rows;
  for (std::size_t i = 0; i < made.size(); ++i) {
    const Position p = made[i].position;
    if (made[i].token == canvas.token(p) && main.epoch_of(p) == epochs_[i]) rows.push_back(p);
  }
  config_.runner->copy_rows(*config_.cache, main, rows);
  for (Position p : launched_.wanted) result.current.push_back(canvas.token(p) == tokens_[to_size(p)]);
  return result;
}

}  // namespace dllm
