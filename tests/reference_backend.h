#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"
#include "model/weights.h"

namespace dllm::test {

/// The definition of a forward pass, written for readability: float64, no tiling, no fusion, whole rows of logits. The
/// CPU backend is compared with it. Orders of magnitude slower.
class ReferenceBackend : public Backend {
 public:
  ReferenceBackend(const ModelDesc& desc, std::function<Graph(StepShape)> build, const Weights& weights);

  const ModelDesc& desc() const override { return desc_; }
  bool runs_shadows() const override { return true; }
  bool runs_soft_tokens() const override { return true; }
  bool runs_lead() const override { return true; }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

 private:
  ModelDesc desc_;
  std::function<Graph(StepShape)> build_;
  std::vector<std::vector<double>> weights_;  ///< by WeightId; empty where an optional one is absent
};

}  // namespace dllm::test
