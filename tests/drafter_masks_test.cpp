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
    std::vector<std::vector<float>> logits;
    for (Backend* const one : {static_cast<Backend*>(&reference), static_cast<Backend*>(backend.get())}) {
      const auto cache = *one->make_cache(64);
      Scores scores;
      for (Position begin = 0; begin < 24; begin += 6) {  // the graph of blocks stores what later ones see
        SequenceStep step{cache.get(), {}, {}, std::nullopt};
        for (Position p = begin; p < begin + 6; ++p) step.plan.rows.push_back({p, p % 11});
        step.plan.visible = {{0, begin + 6}};
        step.plan.scored = {0, 1, 2, 3, 4, 5};
        step.request.logits = true;
        scores = std::move((*one->forward({&step, 1}))[0]);
      }
      logits.push_back(scores.logits);
    }
    EXPECT_LT(test::deviation(logits[1], {logits[0].begin(), logits[0].end()}), 1e-5);
    seen.push_back(logits[1]);
  }
  EXPECT_EQ(seen[5], seen[0]) << "a window that nothing leaves";
  seen.pop_back();
  for (std::size_t i = 0; i < seen.size(); ++i)
    for (std::size_t k = 0; k < i; ++k) EXPECT_NE(seen[i], seen[k]) << i << " and " << k;
}

}  // namespace
}  // namespace dllm
