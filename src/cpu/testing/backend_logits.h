#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cpu/testing/tiny_model.h"

// Logits of a TinyModel on a CPU backend.

namespace dllm::cpu::test {

inline std::unique_ptr<CpuBackend> make_backend(const TinyModel& model, const CpuOptions& options) {
  auto backend = CpuBackend::create(ModelDesc{}, model.factory(), model.weights(), options);
  EXPECT_TRUE(backend.has_value()) << (backend ? "" : backend.error().message());
  return std::move(*backend);
}

/// Logits of positions [begin, end), whose predecessors are in the cache.
inline std::vector<float> logits_of(CpuBackend& backend, KvCache& cache, Position begin, Position end) {
  SequenceStep step;
  step.cache = &cache;
  for (Position p = begin; p < end; ++p) {
    step.plan.scored.push_back(p - begin);
    step.plan.rows.push_back({p, (p * 37 + p * p % 7) % 150});
  }
  step.plan.visible = {{0, end}};
  step.request.logits = true;
  auto scores = backend.forward(std::span(&step, 1));
  EXPECT_TRUE(scores.has_value());
  return std::move((*scores)[0].logits);
}

}  // namespace dllm::cpu::test
