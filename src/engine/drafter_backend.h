#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "engine/draft_choice.h"
#include "model/model.h"

namespace dllm {

/// An autoregressive model with a drafter beside it (DrafterDesc). Passes of the model are the model's own, bit for
/// bit; steps of Region::kDraft are predicted by the drafter: a block of one known token and masks. What the drafter
/// has to know of the target, hidden states of the positions in front, is kept in the caches of this backend: those of
/// a pass that asks for them (ScoreRequest::hidden) reach the drafter with the pass itself if it is longer than a block
/// (a prompt's), else when the sequence drafts next, for the rows that the cache still holds.
class DrafterBackend final : public Backend {
 public:
  struct Parts {
    std::unique_ptr<Backend> model;    ///< hands out the hidden states that the drafter reads
    std::unique_ptr<Backend> context;  ///< the drafter's graph for hidden states
    std::unique_ptr<Backend> block;    ///< the drafter's graph for blocks; makes the caches of both
    DraftChoice choice;
    std::shared_ptr<const void> owner{};  ///< keeps alive what the drafter's backends borrow
  };
  /// `cost`: of a pass over a block, in passes of the model over as many rows.
  DrafterBackend(Parts parts, const DrafterDesc& drafter, TokenId mask, double cost);

  const ModelDesc& desc() const override { return desc_; }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

 private:
  class Cache;
  static Cache& cache_of(const SequenceStep& step);
  Expected<std::vector<Scores>> run(std::span<const SequenceStep> batch);
  Expected<void> run_model(std::span<const SequenceStep> batch, std::vector<Scores>& all);
  Expected<void> read_hidden(std::span<const SequenceStep* const> of);
  Expected<void> run_drafts(std::span<const SequenceStep> batch, std::vector<Scores>& all);
  SequenceStep block_step(const SequenceStep& draft) const;

  Parts parts_;
  DrafterDesc drafter_;
  TokenId mask_;
  ModelDesc desc_;
};

}  // namespace dllm
