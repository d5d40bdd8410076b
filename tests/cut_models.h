#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#include "graph/cut.h"
#include "model/model.h"

namespace dllm::test {

inline CpuOptions one_thread() {
  CpuOptions options;
  options.threads = 1;
  return options;
}

inline std::unique_ptr<CpuBackend> on_cpu(const Model& model) {
  return *CpuBackend::create(
      model.desc(), [&model](StepShape shape) { return model.build(shape); }, model.weights(), one_thread());
}

/// Builds the first layers, or the last ones with the head.
inline GraphFactory part_of(const Model& model, std::int64_t last, bool front) {
  return [&model, last, front](StepShape shape) {
    GraphCut cut = *cut_graph(model.build(shape), last);
    return front ? std::move(cut.front) : std::move(cut.back);
  };
}

inline std::unique_ptr<CpuBackend> cut_on_cpu(const Model& model, std::int64_t last, bool front) {
  CpuOptions options = one_thread();
  const bool f32 = on_cpu(model)->kv_type() == "f32";
  options.kv = f32 ? CpuKvType::kF32 : CpuKvType::kF16;
  return *CpuBackend::create(model.desc(), part_of(model, last, front), model.weights(), options);
}

/// Positions [begin, end), all scored, which see everything before them.
inline SequenceStep step_over(const Model& model, Position begin, Position end, TokenId seed = 3) {
  SequenceStep step;
  for (Position p = begin; p < end; ++p) {
    step.plan.rows.push_back({p, (p * 7 + seed) % 80});
    step.plan.scored.push_back(p - begin);
  }
  step.plan.visible = {{0, end}};
  step.plan.causal_block = model.desc().causal_block;
  step.request.logits = true;
  return step;
}

/// Runs a batch of one sequence on both.
inline void expect_same_scores(Backend& actual, KvCache& actual_cache, Backend& expected, KvCache& expected_cache,
                               std::vector<SequenceStep>& batch) {
  batch[0].cache = &expected_cache;
  const auto e = expected.forward(batch);
  batch[0].cache = &actual_cache;
  const auto a = actual.forward(batch);
  ASSERT_TRUE(e) << e.error().message();
  ASSERT_TRUE(a) << a.error().message();
  // Floats, and so bits: no logit is a NaN or a zero of another sign.
  EXPECT_EQ((*a)[0].logits, (*e)[0].logits);
  ASSERT_EQ((*a)[0].rows.size(), (*e)[0].rows.size());
  for (std::size_t i = 0; i < (*e)[0].rows.size(); ++i) {
    EXPECT_EQ((*a)[0].rows[i].token, (*e)[0].rows[i].token);
    EXPECT_EQ((*a)[0].rows[i].position, (*e)[0].rows[i].position);
    EXPECT_EQ((*a)[0].rows[i].log_odds, (*e)[0].rows[i].log_odds);
  }
}

}  // namespace dllm::test
