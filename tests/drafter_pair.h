#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "cpu/cpu_backend.h"
#include "engine/drafter_backend.h"
#include "model/drafter_source.h"
#include "random_model.h"

namespace dllm::test {

/// A model and its drafter.
struct Pair {
  std::shared_ptr<const Model> target, drafter;
};

inline Pair paired(const RandomModel& target, RandomModel drafter) {
  drafter.width = target.width;
  drafter.vocab = target.vocab;
  Pair pair{*Model::load(random_source(target), Log()), nullptr};
  ModelSource source = random_source(drafter);
  const auto complete = complete_drafter(*pair.target, source);
  EXPECT_TRUE(complete) << complete.error().message();
  auto loaded = Model::load(std::move(source), Log());
  EXPECT_TRUE(loaded) << loaded.error().message();
  pair.drafter = *loaded;
  const auto checked = check_drafter(*pair.target, *pair.drafter);
  EXPECT_TRUE(checked) << checked.error().message();
  return pair;
}

/// What a backend has scored and handed out.
struct Seen {
  std::vector<float> logits, hidden;
  std::vector<std::int32_t> scored;  ///< of the last step
};

/// Passes on what a backend scores.
class Watched final : public Backend {
 public:
  Watched(std::unique_ptr<Backend> backend, Seen& seen) : backend_(std::move(backend)), seen_(seen) {}
  const ModelDesc& desc() const override { return backend_->desc(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override { return backend_->make_cache(capacity); }
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override {
    std::vector<SequenceStep> steps(batch.begin(), batch.end());
    for (SequenceStep& step : steps) step.request.logits = true;
    seen_.scored = batch.back().plan.scored;
    auto scores = backend_->forward(steps);
    for (const Scores& one : *scores) {
      seen_.logits.insert(seen_.logits.end(), one.logits.begin(), one.logits.end());
      seen_.hidden.insert(seen_.hidden.end(), one.hidden.begin(), one.hidden.end());
    }
    return scores;
  }

 private:
  std::unique_ptr<Backend> backend_;
  Seen& seen_;
};

/// A draft of a block, or a causal pass over decided tokens.
inline Scores scores_of(Backend& backend, KvCache& cache, const std::vector<TokenId>& tokens, PositionRange range,
                        bool draft) {
  SequenceStep step{&cache, {}, {}, std::nullopt};
  step.request.hidden = true;
  step.plan.region = draft ? Region::kDraft : Region::kContext;
  step.plan.causal_block = draft ? 0 : 1;
  step.plan.visible = {{0, range.end}};
  for (Position p = range.begin; p < range.end; ++p) {
    step.plan.rows.push_back({p, draft && p > range.begin ? -1 : tokens[static_cast<std::size_t>(p)]});
    if (!draft || p > range.begin) step.plan.scored.push_back(p - range.begin);
  }
  return (*backend.forward({&step, 1}))[0];
}

/// The drafter beside its model, on the CPU; what both score is recorded.
inline std::unique_ptr<DrafterBackend> watched_pair(const Pair& pair, Seen& target, Seen& drafts) {
  CpuOptions options;
  options.threads = 2;
  const auto [model, drafter] = pair;
  const auto layers = drafter->desc().drafter.target_layers;
  DrafterBackend::Parts parts{
      std::make_unique<Watched>(
          *CpuBackend::create(
              model->desc(), [model, layers](StepShape shape) { return model->build(shape, layers); }, model->weights(),
              options),
          target),
      *CpuBackend::create(
          drafter->desc(), [drafter](StepShape shape) { return drafter->build_context(shape); }, drafter->weights(),
          options),
      std::make_unique<Watched>(*CpuBackend::create(
                                    drafter->desc(), [drafter](StepShape shape) { return drafter->build(shape); },
                                    drafter->weights(), options),
                                drafts),
      DraftChoice(*drafter)};
  return std::make_unique<DrafterBackend>(std::move(parts), drafter->desc().drafter, *drafter->desc().mask, 0.3);
}

}  // namespace dllm::test
