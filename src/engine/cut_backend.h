#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace dllm {

/// A model whose first layers run on one backend and whose others run on another (cut_graph()). Activations of a pass
/// cross once: `front` hands the rows out, `back` takes them in and predicts. K and V of a layer stay where the layer
/// is. It has the bits of either backend alone if both compute alike.
class CutBackend final : public Backend {
 public:
  CutBackend(std::unique_ptr<Backend> front, std::unique_ptr<Backend> back)
      : front_(std::move(front)), back_(std::move(back)) {}

  const ModelDesc& desc() const override { return back_->desc(); }
  bool runs_shadows() const override { return front_->runs_shadows() && back_->runs_shadows(); }
  bool runs_branches() const override { return front_->runs_branches() && back_->runs_branches(); }
  bool runs_soft_tokens() const override { return front_->runs_soft_tokens(); }
  bool runs_lead() const override { return front_->runs_lead() && back_->runs_lead(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

 private:
  class Cache;
  Expected<std::vector<Scores>> run(std::span<const SequenceStep> batch);

  std::unique_ptr<Backend> front_, back_;
};

}  // namespace dllm
