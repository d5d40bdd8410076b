#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"

namespace dllm {

/// A model whose passes over masks (Region::kCanvas: drafts, and the blocks of the mode `diffusion`) run on another one
/// of the same shape, over the same caches: what drafts write there, their verification writes again.
class DraftBackend final : public Backend {
 public:
  /// Both backends make and read the same kind of cache. `owner` keeps alive what `drafts` borrows.
  DraftBackend(std::unique_ptr<Backend> model, std::unique_ptr<Backend> drafts, std::shared_ptr<const void> owner)
      : owner_(std::move(owner)), model_(std::move(model)), drafts_(std::move(drafts)) {}

  const ModelDesc& desc() const override { return model_->desc(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override { return model_->make_cache(capacity); }
  /// A batch may hold both kinds of passes; each kind is forwarded together.
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

 private:
  std::shared_ptr<const void> owner_;
  std::unique_ptr<Backend> model_, drafts_;
};

/// Whether `drafts` can draft for `model`: the same network, of other weights. Errors: kUsage, kMismatch, at
/// "--draft-model".
Expected<void> check_draft_model(const ModelDesc& model, const ModelDesc& drafts);

}  // namespace dllm
