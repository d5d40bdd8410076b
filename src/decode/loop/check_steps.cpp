#include "decode/loop/check_steps.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace dllm {
namespace {

StepPlan causal_rows(const Canvas& canvas, std::span<const Edit> drafts, PositionRange rows) {
  StepPlan plan;
  plan.causal_block = 1;
  plan.visible = {{0, rows.end}};
  for (Position p = rows.begin; p < rows.end; ++p) {
    const Position draft = p - drafts.front().position;
    plan.rows.push_back({p, draft < 0 ? canvas.token(p) : drafts[static_cast<std::size_t>(draft)].token});
  }
  return plan;
}

}  // namespace

std::int32_t check_branches(const ModelDesc& desc, std::int32_t drafts) {
  if (drafts == 0) return 0;
  return desc.logit_shift > 0 ? 1 : drafts + 1;
}

std::vector<CheckStep> check_steps(const ModelDesc& desc, const Canvas& canvas, std::span<const Edit> drafts,
                                   Position window_end, const KvCache& cache, std::span<KvCache* const> branches) {
  const Position first = drafts.front().position, end = drafts.back().position + 1;
  const Position block = first - first % std::max(1, desc.causal_block);
  std::vector<CheckStep> steps;
  branches[0]->follow(cache);
  if (desc.logit_shift > 0) {
    assert(first > 0);
    CheckStep& step = steps.emplace_back(branches[0]);
    const PositionRange rows{std::min(block, first - 1), end};
    step.plan = causal_rows(canvas, drafts, rows);
    for (Position p = first - 1; p < end; ++p) {
      if (p + 1 == end && (end == window_end || !canvas.masked(end))) break;
      step.plan.scored.push_back(p - rows.begin);
      step.predicted.push_back(p + 1);
    }
    return steps;
  }
  if (block + 1 < end) steps.push_back({branches[0], causal_rows(canvas, drafts, {block, end - 1})});
  for (Position p = first; p < end; ++p) {
    KvCache* const branch = branches[static_cast<std::size_t>(p - first) + 1];
    branch->follow(*branches[0], steps.empty() ? std::span<const PlanRow>() : steps.front().plan.rows);
    CheckStep one{branch, {}, {p}};
    one.plan.causal_block = 1;
    one.plan.visible = {{0, p + 1}};
    one.plan.rows = {{p, canvas.mask()}};
    one.plan.scored = {0};
    steps.push_back(std::move(one));
  }
  return steps;
}

}  // namespace dllm
