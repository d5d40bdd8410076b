#include "engine/cut_backend.h"

#include <new>

#include "backend/failed_pass.h"
#include "base/try.h"

namespace dllm {

/// The rows of both parts. The base class says which are valid in both.
class CutBackend::Cache final : public KvCache {
 public:
  Cache(Position capacity, std::unique_ptr<KvCache> front, std::unique_ptr<KvCache> back)
      : KvCache(capacity), front_(std::move(front)), back_(std::move(back)) {}

  KvCache& front() { return *front_; }
  KvCache& back() { return *back_; }
  using KvCache::record;

  std::int64_t bytes() const override {
    return front_->bytes() == 0 || back_->bytes() == 0 ? 0 : front_->bytes() + back_->bytes();
  }

  void copy(const KvCache& from, PositionRange rows, Position to) override {
    const auto& other = static_cast<const Cache&>(from);
    if (rows.size() <= 0) return;
    const Position shift = to - rows.begin;
    // What a device fails to copy must not look like what the rows there were before.
    back_->invalidate({to, to + rows.size()});
    back_->copy(*other.back_, rows, to);
    if (!back_->holds(PositionRange{to, to + rows.size()})) return;
    front_->copy(*other.front_, rows, to);
    std::vector<PlanRow> written;
    for (Position p = rows.begin; p < rows.end; ++p) written.push_back({p + shift, other.token_of(p)});
    record(written);
  }

 protected:
  void followed(const KvCache& parent, std::span<const PlanRow> pending) override {
    const auto& other = static_cast<const Cache&>(parent);
    front_->follow(*other.front_, pending);
    back_->follow(*other.back_, pending);
  }
  /// A part that fails empties its own rows.
  bool take(const KvCache& branch, std::span<const PositionRange> rows) override {
    const auto& other = static_cast<const Cache&>(branch);
    front_->adopt(*other.front_);
    back_->adopt(*other.back_);
    for (const PositionRange& range : rows)
      for (Position p = range.begin; p < range.end; ++p)
        if (branch.holds(p) && !(front_->holds(p) && back_->holds(p))) return false;
    return true;
  }

 private:
  std::unique_ptr<KvCache> front_, back_;
};

Expected<std::unique_ptr<KvCache>> CutBackend::make_cache(Position capacity) {
  DLLM_TRY(std::unique_ptr<KvCache> front, front_->make_cache(capacity));
  DLLM_TRY(std::unique_ptr<KvCache> back, back_->make_cache(capacity));
  return std::unique_ptr<KvCache>(std::make_unique<Cache>(capacity, std::move(front), std::move(back)));
}

Expected<std::vector<Scores>> CutBackend::forward(std::span<const SequenceStep> batch) {
  auto scores = [&]() -> Expected<std::vector<Scores>> {
    try {
      return run(batch);
    } catch (const std::bad_alloc&) {
      return Error{ErrorCode::kResource, "out of memory in a forward pass", "", "use fewer rows per step"};
    }
  }();
  for (const SequenceStep& step : batch) static_cast<Cache&>(*step.cache).record(step.plan.rows);
  if (!scores) invalidate_rows(batch);
  return scores;
}

Expected<std::vector<Scores>> CutBackend::run(std::span<const SequenceStep> batch) {
  std::vector<SequenceStep> steps;
  for (const SequenceStep& step : batch) {
    SequenceStep& front = steps.emplace_back();
    front.cache = &static_cast<Cache&>(*step.cache).front();
    front.plan = step.plan;
    front.plan.scored.clear();
    front.request.hidden = true;
  }
  DLLM_TRY(std::vector<Scores> rows, front_->forward(steps));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    SequenceStep& back = steps[i];
    back.cache = &static_cast<Cache&>(*batch[i].cache).back();
    back.plan.scored = batch[i].plan.scored;
    back.plan.mixtures.clear();  // of embeddings
    back.plan.hidden = std::move(rows[i].hidden);
    back.request = batch[i].request;
    back.guidance = batch[i].guidance;
  }
  return back_->forward(steps);
}

}  // namespace dllm
