// Drafters whose layers see a window of positions, or nothing behind a row, whatever their plan says.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "cpu/cpu_backend.h"
#include "drafter_pair.h"
#include "golden_model.h"
#include "reference_backend.h"

namespace dllm {
namespace {

using test::Pair;
using test::paired;
using test::RandomModel;

/// A sequence of 24 positions in blocks of six.
struct Blocks {
  Position late;  ///< of its first block: positions that a sequence of the batch's first pass has then
  TokenId stride;
};

/// Logits of the last block of every sequence.
std::vector<std::vector<float>> last_logits(Backend& backend, const std::vector<Blocks>& sequences) {
  std::vector<std::unique_ptr<KvCache>> caches;
  for (std::size_t i = 0; i < sequences.size(); ++i) caches.push_back(*backend.make_cache(64));
  std::vector<std::vector<float>> logits(sequences.size());
  for (Position now = 0; now < 48; now += 6) {  // the graph of blocks stores what later ones see
    std::vector<SequenceStep> steps;
    std::vector<std::size_t> of;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const Position begin = now - sequences[i].late;
      if (begin < 0 || begin >= 24) continue;
      SequenceStep step{caches[i].get(), {}, {}, std::nullopt};
      for (Position p = begin; p < begin + 6; ++p) step.plan.rows.push_back({p, p * sequences[i].stride % 11});
      step.plan.visible = {{0, begin + 6}};
      step.plan.scored = {0, 1, 2, 3, 4, 5};
      step.request.logits = true;
      steps.push_back(std::move(step));
      of.push_back(i);
    }
    if (steps.empty()) continue;
    auto scores = *backend.forward(steps);
    for (std::size_t k = 0; k < of.size(); ++k) logits[of[k]] = std::move(scores[k].logits);
  }
  return logits;
}

/// Drafts with masks of the layers' own, against the float64 executor, alone and in a batch.
TEST(DrafterMasks, LayersHaveMasksOfTheirOwn) {
  struct Kind {
    std::int32_t window;
    std::optional<bool> causal;
  };
  std::vector<std::vector<float>> seen;
  for (const Kind& kind : {Kind{0, {}}, Kind{0, true}, Kind{7, {}}, Kind{7, false}, Kind{7, true}, Kind{200, false}}) {
    RandomModel spec{.architecture = "dflash", .heads = 2, .kv_heads = 1, .seed = 6};
    spec.drafter = {.target_layers = {0, 2}, .block = 6, .causal = kind.causal};
    spec.drafter_window = kind.window;
    const Pair pair = paired({.architecture = "qwen3", .layers = 4, .kv_heads = 2, .seed = 5}, spec);
    const auto build = [drafter = pair.drafter](StepShape shape) { return drafter->build(shape); };
    CpuOptions cpu;
    cpu.threads = 2;
    cpu.kv = CpuKvType::kF32;
    test::ReferenceBackend reference(pair.drafter->desc(), build, pair.drafter->weights());
    const auto backend = *CpuBackend::create(pair.drafter->desc(), build, pair.drafter->weights(), cpu);
    std::vector<std::vector<float>> logits, others;
    for (Backend* const one : {static_cast<Backend*>(&reference), static_cast<Backend*>(backend.get())}) {
      logits.push_back(last_logits(*one, {{0, 1}}).front());
      // The other sequence begins later, so that a pass has blocks behind different numbers of positions.
      const auto both = last_logits(*one, {{12, 3}, {0, 1}});
      others.push_back(both.front());
      EXPECT_LT(test::deviation(both.back(), {logits.back().begin(), logits.back().end()}), 1e-5) << "in a batch";
    }
    EXPECT_LT(test::deviation(logits[1], {logits[0].begin(), logits[0].end()}), 1e-5);
    EXPECT_LT(test::deviation(others[1], {others[0].begin(), others[0].end()}), 1e-5);
    seen.push_back(logits[1]);
  }
  EXPECT_EQ(seen[5], seen[0]) << "a window that nothing leaves";
  seen.pop_back();
  for (std::size_t i = 0; i < seen.size(); ++i)
    for (std::size_t k = 0; k < i; ++k) EXPECT_NE(seen[i], seen[k]) << i << " and " << k;
}

}  // namespace
}  // namespace dllm
