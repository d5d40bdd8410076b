#pragma once

#include "npu_backend/functional/batch_spec.h"
#include "npu_backend/functional/host_reduction.h"
#include "npu_compiler/testing/reference/executor.h"

// The reference executor with the Backend interface, so that whole generations can be compared.

namespace dllm::npu::test {

class ReferenceCache final : public KvCache {
 public:
  explicit ReferenceCache(Position capacity) : KvCache(capacity) {}
  reference::Cache data;
  using KvCache::record;
};

class ReferenceBackend final : public Backend {
 public:
  using GraphFactory = std::function<Graph(StepShape)>;
  ReferenceBackend(ModelDesc desc, GraphFactory graph, const Weights& weights, const ModelLayout& layout)
      : desc_(std::move(desc)), graph_(std::move(graph)), executor_(layout, weights) {}

  const ModelDesc& desc() const override { return desc_; }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override {
    return std::unique_ptr<KvCache>(std::make_unique<ReferenceCache>(capacity));
  }
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override {
    const StepSpec spec = spec_of(batch, [](const SequenceStep&) { return std::uint64_t{0}; });
    std::vector<TokenId> tokens;
    std::vector<reference::Cache*> caches;
    for (const SequenceStep& step : batch) {
      auto& cache = static_cast<ReferenceCache&>(*step.cache);
      if (!step.plan.rows.empty()) caches.push_back(&cache.data);
      for (const PlanRow& row : step.plan.rows) tokens.push_back(row.token);
      cache.record(step.plan.rows);
    }
    const reference::StepResult result = executor_.run(graph_({spec.rows(), spec.scored()}), spec, tokens, caches);
    std::vector<std::vector<float>> logits(batch.size());
    std::size_t row = 0;
    for (std::size_t s = 0; s < batch.size(); ++s)
      for (std::size_t i = 0; i < batch[s].plan.scored.size(); ++i, ++row)
        for (const Bf16 logit : result.logits[row]) logits[s].push_back(bf16_to_f32(logit));
    return score_on_host(batch, logits, desc_.vocab);
  }

 private:
  ModelDesc desc_;
  GraphFactory graph_;
  reference::Executor executor_;
};

}  // namespace dllm::npu::test
