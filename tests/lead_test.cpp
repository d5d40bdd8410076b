// Plans in which some positions come before all others (StepPlan::lead, StepPlan::apart) on the CPU: against the
// float64 definition, and bit for bit with any number of threads and on branches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/lead.h"
#include "cpu/cpu_backend.h"
#include "random_model.h"
#include "reference_backend.h"

namespace dllm {
namespace {

using test::RandomModel;

struct LeadPlan {
  const char* name;
  StepPlan plan;
};

/// After a causal pass over [0, 24): rows that lead and rows that do not, with and without limits of slots.
std::vector<LeadPlan> lead_plans() {
  StepPlan filled;  // decided tokens between masks, and one row of the prompt computed again
  filled.causal_block = 1;
  filled.visible = {{0, 37}};
  filled.lead = {{0, 21}, {23, 24}, {26, 28}, {33, 34}};
  for (Position p = 20; p < 37; ++p) filled.rows.push_back({p, (p * 5 + 1) % 80});
  filled.scored = {0, 1, 2, 3, 6, 7, 12, 13, 16};
  StepPlan masks = filled;  // nothing that leads is computed
  masks.visible = {{0, 20}, {24, 30}};
  masks.lead = {{0, 20}};
  masks.rows = {{24, 3}, {25, 4}, {26, 5}, {27, 6}, {28, 7}, {29, 8}};
  masks.scored = {0, 2, 5};
  StepPlan slots = masks;
  slots.lead = {{0, 18}};
  slots.visible = {{0, 18}, {24, 32}};
  slots.apart = {{24, 28}, {28, 32}};
  slots.rows = {{24, 3}, {25, 4}, {26, 5}, {27, 6}, {28, 7}, {29, 8}, {30, 9}, {31, 10}};
  slots.scored = {0, 3, 4, 7};
  StepPlan shadows = filled;
  shadows.shadows = {{{22, 79}, {{0, 22}, {23, 37}}}, {{30, 79}, {{0, 30}, {31, 37}}}};
  shadows.scored.push_back(17), shadows.scored.push_back(18);
  return {{"filled", filled}, {"masks", masks}, {"slots", slots}, {"shadows", shadows}};
}

std::unique_ptr<CpuBackend> lead_backend(const std::shared_ptr<const Model>& model, int threads) {
  CpuOptions options;
  options.threads = threads;
  options.arithmetic = CpuArithmetic::kExact;
  return *CpuBackend::create(
      model->desc(), [model](StepShape shape) { return model->build(shape); }, model->weights(), options);
}

/// The logits of a plan after a causal pass over the first 24 positions.
std::vector<float> logits_of(Backend& backend, const StepPlan& plan) {
  const auto cache = *backend.make_cache(64);
  SequenceStep step{cache.get(), {}, {}, {}};
  step.plan.causal_block = 1;
  for (Position p = 0; p < 24; ++p) step.plan.rows.push_back({p, (p * 7 + 3) % 80});
  step.plan.visible = {{0, 24}};
  step.plan.scored = {23};
  EXPECT_TRUE(backend.forward({&step, 1}));
  step.plan = plan;
  step.request.logits = true;
  return (*backend.forward({&step, 1}))[0].logits;
}

TEST(Lead, FollowsTheDefinition) {
  for (const char* architecture : {"llada", "qwen3"}) {
    const std::shared_ptr<const Model> model =
        *Model::load(test::random_source({.architecture = architecture, .kv_heads = 2}));
    test::ReferenceBackend reference(
        model->desc(), [model](StepShape shape) { return model->build(shape); }, model->weights());
    for (const LeadPlan& one : lead_plans()) {
      const std::vector<float> expected = logits_of(reference, one.plan);
      double scale = 0, worst = 0;
      const std::vector<float> actual = logits_of(*lead_backend(model, 2), one.plan);
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        scale = std::max(scale, std::abs(static_cast<double>(expected[i])));
        worst = std::max(worst, std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i])));
      }
      EXPECT_LT(worst, 1e-5 * scale) << architecture << ' ' << one.name;
      EXPECT_EQ(actual, logits_of(*lead_backend(model, 1), one.plan)) << architecture << ' ' << one.name;
    }
  }
}

/// Slots that do not see each other have the bits of passes of their own.
TEST(Lead, SlotsApartAreThoseOfPassesOfTheirOwn) {
  const std::shared_ptr<const Model> model = *Model::load(test::random_source({.architecture = "qwen3"}));
  const auto backend = lead_backend(model, 2);
  const StepPlan both = lead_plans()[2].plan;
  const std::vector<float> together = logits_of(*backend, both);
  std::vector<float> alone;
  for (const PositionRange& slot : both.apart) {
    StepPlan one = both;
    one.visible = {{0, 18}, slot};
    one.apart = {slot};
    std::erase_if(one.rows, [&](const PlanRow& row) { return !slot.contains(row.position); });
    one.scored = {0, 3};
    const std::vector<float> logits = logits_of(*backend, one);
    alone.insert(alone.end(), logits.begin(), logits.end());
  }
  EXPECT_EQ(together, alone);
}

TEST(Lead, IsWhatIsDecided) {
  const std::shared_ptr<const Model> model = *Model::load(test::random_source({.architecture = "llada"}));
  ModelDesc desc = model->desc();
  desc.mask = 79;
  const auto backend = lead_backend(model, 1);
  const auto cache = *backend->make_cache(16);
  SequenceStep step{cache.get(), {}, {}, {}};
  step.plan.rows = {{0, 1}, {1, 79}, {2, 5}};
  step.plan.visible = {{0, 3}};
  step.plan.scored = {0};
  lead_decided(desc, *cache, step.plan);
  EXPECT_TRUE(step.plan.lead.empty()) << "other models have no order";
  ASSERT_TRUE(backend->forward({&step, 1}));
  desc.decided_first = true;
  step.plan.rows = {{1, 4}, {3, 79}, {4, 6}};
  step.plan.visible = {{0, 5}};
  lead_decided(desc, *cache, step.plan);
  EXPECT_EQ(step.plan.lead, (std::vector<PositionRange>{{0, 3}, {4, 5}}));
  EXPECT_EQ(seen_behind_lead(step.plan, 3, step.plan.visible), (std::vector<PositionRange>{{0, 5}}));
  step.plan.lead = {{0, 2}, {4, 5}};
  EXPECT_EQ(seen_behind_lead(step.plan, 2, step.plan.visible), (std::vector<PositionRange>{{0, 3}, {4, 5}}));
}

}  // namespace
}  // namespace dllm
