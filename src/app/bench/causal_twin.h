#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace dllm::app {

/// A model that fills masks, run autoregressively with the same weights: each row attends to the positions before it
/// and predicts the next token, and a step is one row over the K/V cache. Its output is meaningless, but its cost is
/// that of an autoregressive model of this shape in this engine.
class CausalTwin final : public Backend {
 public:
  /// Borrows the backend. Precondition: its model fills masks.
  explicit CausalTwin(Backend& backend) : backend_(backend), desc_(backend.desc()) {
    desc_.mask.reset();
    desc_.modes.clear();
    desc_.causal_block = 1;
    desc_.logit_shift = 1;
    desc_.block_length = 1;
    desc_.block_origin = BlockOrigin::kPromptEnd;
    desc_.delete_token.reset();
    desc_.insert_token.reset();
  }

  const ModelDesc& desc() const override { return desc_; }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override { return backend_.make_cache(capacity); }
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override {
    return backend_.forward(batch);
  }

 private:
  Backend& backend_;
  ModelDesc desc_;
};

}  // namespace dllm::app
