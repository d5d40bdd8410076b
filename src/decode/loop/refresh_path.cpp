#include "decode/loop/refresh_path.h"

#include <algorithm>
#include <utility>

#include "backend/lead.h"
#include "backend/position_ranges.h"
#include "base/to_size.h"
#include "base/try.h"

namespace dllm {
namespace {

/// What the launched rows see: everything before `end` that the cache holds or that they write.
std::vector<PositionRange> visible_to(const std::vector<Position>& rows, const KvCache& cache, Position end) {
  std::vector<PositionRange> visible;
  for (Position p = 0; p < end; ++p)
    if (cache.holds(p) || std::binary_search(rows.begin(), rows.end(), p)) append(visible, p);
  return visible;
}

SecondPath::Launch launch_of(const Reviser::Refresh& refresh, const PassPlanner& planner, const Canvas& canvas) {
  SecondPath::Launch launch;
  StepPlan& plan = launch.step.plan;
  launch.wanted = refresh.positions;
  std::vector<Position> rows = refresh.positions;
  for (const Position p : refresh.positions) rows.push_back(planner.source_of(p));
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  for (const Position p : rows) {
    const bool hidden = refresh.left_out && std::binary_search(refresh.positions.begin(), refresh.positions.end(), p);
    plan.rows.push_back({p, hidden ? canvas.mask() : canvas.token(p)});
  }
  for (const Position p : refresh.positions) {
    const auto source = std::lower_bound(rows.begin(), rows.end(), planner.source_of(p));
    const auto row = static_cast<std::int32_t>(source - rows.begin());
    if (plan.scored.empty() || plan.scored.back() != row) plan.scored.push_back(row);
    launch.of_row.push_back(static_cast<std::int32_t>(plan.scored.size()) - 1);
    launch.step.request.queries.push_back({launch.of_row.back(), canvas.token(p)});
  }
  return launch;
}

}  // namespace

RefreshPath::RefreshPath(const SecondPathConfig& config, std::vector<TokenRule> rules)
    : path_(config), rules_(std::move(rules)) {}

void RefreshPath::launch(const DecodeContext& context, Reviser& reviser, const PassPlanner& planner, Position end,
                         Canvas& canvas, KvCache& cache, DenoiseCounters& counters) {
  if (!path_.idle()) return;
  const Reviser::Refresh refresh = reviser.refresh(context);
  if (refresh.positions.empty()) return;
  SecondPath::Launch launch = launch_of(refresh, planner, canvas);
  std::vector<Position> rows;
  for (const PlanRow& row : launch.step.plan.rows) rows.push_back(row.position);
  launch.step.plan.causal_block = planner.desc().causal_block;
  launch.step.plan.visible = visible_to(rows, cache, refresh.sees_window ? end : context.window.begin);
  lead_decided(planner.desc(), cache, launch.step.plan);
  launch.step.request.rng = context.rng;
  launch.step.request.step = context.step;
  launch.step.request.rules = rules_;
  path_.launch(std::move(launch), canvas, cache, context.step);
  launched_ = refresh.positions;
  if (path_.delay() == 0) early_ = merge(context, reviser, canvas, cache, counters);
}

Expected<std::vector<Edit>> RefreshPath::take_early() {
  return std::exchange(early_, Expected<std::vector<Edit>>(std::vector<Edit>()));
}

Expected<std::vector<Edit>> RefreshPath::merge(const DecodeContext& context, Reviser& reviser, Canvas& canvas,
                                               KvCache& cache, DenoiseCounters& counters) {
  DLLM_TRY(const SecondPath::Result result, path_.collect(canvas, cache));
  ++counters.second_passes;
  counters.add_rows(result.launch.step.plan);
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < result.launch.wanted.size(); ++i) {
    if (!result.current[i]) continue;
    const RowScore& row = result.scores.rows[to_size(result.launch.of_row[i])];
    candidates.push_back({result.launch.wanted[i], row.token, row.confidence, row.log_odds, row.margin, row.entropy,
                          row.token >= 0 && !row.overruled, row.logit, std::span(result.scores.queried).subspan(i, 1)});
  }
  std::vector<Edit> edits;
  for (const Edit& edit : reviser.merge(context, candidates))
    if (canvas.apply(edit)) edits.push_back(edit);
  return edits;
}

}  // namespace dllm
