#include "engine/drafter_backend.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "backend/failed_pass.h"
#include "backend/position_ranges.h"
#include "base/try.h"

namespace dllm {

/// The rows of both models. The base class has the model's, which the loop and the prefix store ask for.
class DrafterBackend::Cache final : public KvCache {
 public:
  Cache(Position capacity, std::unique_ptr<KvCache> model, std::unique_ptr<KvCache> drafter)
      : KvCache(capacity), model_(std::move(model)), drafter_(std::move(drafter)) {}

  KvCache& model() { return *model_; }
  KvCache& drafter() { return *drafter_; }

  std::int64_t bytes() const override {
    return model_->bytes() == 0 || drafter_->bytes() == 0 ? 0 : model_->bytes() + drafter_->bytes();
  }

  void copy(const KvCache& from, PositionRange rows, Position to) override {
    const auto& other = static_cast<const Cache&>(from);
    model_->copy(*other.model_, rows, to);
    std::vector<PlanRow> written;
    for (Position p = rows.begin; p < rows.end; ++p) {
      written.push_back({to + p - rows.begin, other.token_of(p)});
      // The drafter lacks positions whose hidden states it has not read.
      if (other.reads(p)) drafter_->copy(*other.drafter_, {p, p + 1}, to + p - rows.begin);
    }
    record(written);
  }

  void copy_rows(const KvCache& from, std::span<const Position> positions) override {
    const auto& other = static_cast<const Cache&>(from);
    model_->copy_rows(*other.model_, positions);
    std::vector<PlanRow> written;
    std::vector<Position> read;
    for (const Position p : positions) {
      written.push_back({p, other.token_of(p)});
      if (other.reads(p)) read.push_back(p);
    }
    drafter_->copy_rows(*other.drafter_, read);
    record(written);
  }

  /// The model has computed these rows anew. `hidden`: what it handed out for them, or nothing.
  void wrote(std::span<const PlanRow> rows, std::vector<float> hidden) {
    record(rows);
    for (const PlanRow& row : rows) drafter_->invalidate({row.position, row.position + 1});
    unread_.assign(rows.begin(), rows.end());
    hidden_ = std::move(hidden);
  }

  /// Whether the drafter knows the position as the model has it.
  bool reads(Position p) const { return holds(p) && drafter_->holds(p) && drafter_->token_of(p) == token_of(p); }

  /// The hidden states that the drafter has not read, of rows that are still the model's.
  void take_unread(StepPlan& plan) {
    const std::size_t width = unread_.empty() ? 0 : hidden_.size() / unread_.size();
    for (std::size_t i = 0; i < unread_.size() && width > 0; ++i) {
      if (token_of(unread_[i].position) != unread_[i].token) continue;
      plan.rows.push_back(unread_[i]);
      const auto from = hidden_.begin() + static_cast<std::ptrdiff_t>(i * width);
      plan.hidden.insert(plan.hidden.end(), from, from + static_cast<std::ptrdiff_t>(width));
    }
    unread_.clear();
    hidden_.clear();
  }

  /// Positions in front of `end` that the drafter knows.
  std::vector<PositionRange> known(Position end) const {
    std::vector<PositionRange> ranges;
    for (Position p = 0; p < end; ++p)
      if (reads(p)) append(ranges, p);
    return ranges;
  }

 private:
  std::unique_ptr<KvCache> model_, drafter_;
  std::vector<PlanRow> unread_;
  std::vector<float> hidden_;  ///< of them, one row after the other
};

DrafterBackend::Cache& DrafterBackend::cache_of(const SequenceStep& step) { return static_cast<Cache&>(*step.cache); }

DrafterBackend::DrafterBackend(Parts parts, const DrafterDesc& drafter, TokenId mask, double cost)
    : parts_(std::move(parts)), drafter_(drafter), mask_(mask), desc_(parts_.model->desc()) {
  desc_.drafted = {drafter.block, cost};
  if (desc_.autoregressive()) desc_.modes = {DecodingMode::kAutoregressive, DecodingMode::kSelfSpeculation};
}

Expected<std::unique_ptr<KvCache>> DrafterBackend::make_cache(Position capacity) {
  DLLM_TRY(std::unique_ptr<KvCache> model, parts_.model->make_cache(capacity));
  // A drafter always sees whole blocks, also where the canvas ends before.
  DLLM_TRY(std::unique_ptr<KvCache> drafter, parts_.block->make_cache(capacity + drafter_.block));
  try {
    return std::unique_ptr<KvCache>(std::make_unique<Cache>(capacity, std::move(model), std::move(drafter)));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResource, "out of memory in a cache", "", "use a shorter context"};
  }
}

Expected<std::vector<Scores>> DrafterBackend::forward(std::span<const SequenceStep> batch) {
  auto scores = [&]() -> Expected<std::vector<Scores>> {
    try {
      return run(batch);
    } catch (const std::bad_alloc&) {
      return Error{ErrorCode::kResource, "out of memory in a forward pass", "", "use fewer rows per step"};
    }
  }();
  if (!scores) invalidate_rows(batch);
  return scores;
}

Expected<std::vector<Scores>> DrafterBackend::run(std::span<const SequenceStep> batch) {
  std::vector<Scores> all(batch.size());
  DLLM_CHECK_OK(run_model(batch, all));
  DLLM_CHECK_OK(run_drafts(batch, all));
  return all;
}

Expected<void> DrafterBackend::run_model(std::span<const SequenceStep> batch, std::vector<Scores>& all) {
  std::vector<SequenceStep> own;
  std::vector<std::size_t> places(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].plan.region == Region::kDraft) continue;
    places[i] = own.size();
    own.push_back(batch[i]);
    own.back().cache = &cache_of(batch[i]).model();
  }
  if (own.empty()) return {};
  for (SequenceStep& step : own)
    if (step.guidance)
      step.guidance->unconditional =
          static_cast<std::int32_t>(places[static_cast<std::size_t>(step.guidance->unconditional)]);
  DLLM_TRY(std::vector<Scores> scores, parts_.model->forward(own));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].plan.region == Region::kDraft) continue;
    all[i] = std::move(scores[places[i]]);
    cache_of(batch[i]).wrote(batch[i].plan.rows, std::exchange(all[i].hidden, {}));
  }
  // A pass longer than a block is a prompt's. Whoever keeps its rows for other requests does so before the first draft.
  std::vector<const SequenceStep*> prompts;
  for (const SequenceStep& step : batch)
    if (step.plan.region != Region::kDraft && step.request.hidden &&
        static_cast<Position>(step.plan.rows.size()) > drafter_.block)
      prompts.push_back(&step);
  return read_hidden(prompts);
}

/// K and V of the drafter for the positions whose hidden states it has not read.
Expected<void> DrafterBackend::read_hidden(std::span<const SequenceStep* const> of) {
  std::vector<SequenceStep> steps;
  for (const SequenceStep* const one : of) {
    SequenceStep step{&cache_of(*one).drafter(), {}, {}, std::nullopt};
    cache_of(*one).take_unread(step.plan);
    if (!step.plan.rows.empty()) steps.push_back(std::move(step));
  }
  if (steps.empty()) return {};
  DLLM_TRY(const std::vector<Scores> none, parts_.context->forward(steps));
  return {};
}

/// The block as the drafter was trained on it: whole, whatever part of it is wanted.
SequenceStep DrafterBackend::block_step(const SequenceStep& draft) const {
  Cache& cache = cache_of(draft);
  SequenceStep step{&cache.drafter(), {}, draft.request, std::nullopt};
  const Position begin = draft.plan.rows.front().position, end = begin + drafter_.block;
  assert(static_cast<Position>(draft.plan.rows.size()) <= drafter_.block);
  for (Position p = begin; p < end; ++p) {
    const auto i = static_cast<std::size_t>(p - begin);
    const TokenId shown = i < draft.plan.rows.size() ? draft.plan.rows[i].token : -1;
    step.plan.rows.push_back({p, shown < 0 || (desc_.mask && shown == *desc_.mask) ? mask_ : shown});
  }
  step.plan.visible = cache.known(begin);
  for (Position p = begin; p < end; ++p) append(step.plan.visible, p);
  for (const std::int32_t row : draft.plan.scored) step.plan.scored.push_back(drafter_.from_anchor ? row - 1 : row);
  return step;
}

Expected<void> DrafterBackend::run_drafts(std::span<const SequenceStep> batch, std::vector<Scores>& all) {
  std::vector<const SequenceStep*> drafts;
  for (const SequenceStep& step : batch)
    if (step.plan.region == Region::kDraft) drafts.push_back(&step);
  if (drafts.empty()) return {};
  DLLM_CHECK_OK(read_hidden(drafts));
  std::vector<SequenceStep> steps;
  for (const SequenceStep* const draft : drafts) {
    steps.push_back(block_step(*draft));
    parts_.choice.prepare(steps.back().request);
  }
  DLLM_TRY(std::vector<Scores> scores, parts_.block->forward(steps));
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    const PositionRange block{steps[i].plan.rows.front().position, steps[i].plan.rows.back().position + 1};
    steps[i].cache->invalidate(block);  // the next block begins where this one is verified to
    if (drafter_.from_anchor)
      for (RowScore& row : scores[i].rows) row.position += 1;
    parts_.choice.choose(*drafts[i], scores[i]);
    all[static_cast<std::size_t>(drafts[i] - batch.data())] = std::move(scores[i]);
  }
  return {};
}

}  // namespace dllm
