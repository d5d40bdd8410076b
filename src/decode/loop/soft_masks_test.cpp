#include "decode/loop/soft_masks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::masked_desc;
using test::MethodResult;
using test::MethodRun;
using test::run_method;

// Worked by hand.
TEST(SoftMasks, WeightsAndThresholdsOfTheReference) {
  SoftMasks masks({.gain = 0.3});
  const std::vector<double> weights = {.15, .17, .29, .30, .30}, floors = {1.0, .98, .86, .84, .80};
  const std::vector<int> passes = {0, 1, 7, 8, 10};
  int made = 0;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    for (; made < passes[i]; ++made) masks.end_pass();
    EXPECT_NEAR(masks.weight(), weights[i], 1e-12);
    EXPECT_NEAR(std::max(masks.least_threshold(), 0.8), floors[i], 1e-12);
  }
}

// The list and all logits give the same expectation, except that the list leaves out unlikely tokens and is not
// rescaled.
TEST(SoftMasks, TheListIsTheHeadOfTheDistribution) {
  const std::vector<float> logits = {1.f, 3.f, -2.f, 2.5f, 0.f};
  double sum = 0;
  for (float z : logits) sum += std::exp(static_cast<double>(z));
  RowScore row;
  row.token = 3;  // a draw need not be the likeliest
  row.logit = 2.5f;
  row.confidence = std::exp(2.5) / sum;
  const std::vector<TopToken> top = {{1, 3.f}, {3, 2.5f}};
  SoftMasks listed({.gain = 0.3, .top = 2}), exact({.gain = 0.3, .top = 0});
  listed.record(9, row, top, {});
  exact.record(9, row, {}, logits);
  ASSERT_EQ(listed.mixture(9).size(), 2u);
  ASSERT_EQ(exact.mixture(9).size(), 5u);
  for (const MixedToken& token : listed.mixture(9)) {
    const double p = std::exp(static_cast<double>(logits[static_cast<std::size_t>(token.token)])) / sum;
    EXPECT_NEAR(static_cast<double>(token.weight), 0.15 * p, 1e-7);
    EXPECT_NEAR(static_cast<double>(exact.mixture(9)[static_cast<std::size_t>(token.token)].weight), 0.15 * p, 1e-7);
  }
  EXPECT_TRUE(listed.mixture(8).empty());
  listed.forget(9);
  EXPECT_TRUE(listed.mixture(9).empty());
}

TEST(SoftMasks, OnlyMasksAreMixed) {
  FakeBackend backend(masked_desc());
  backend.tops = true;
  MethodRun run{.cache = "dual"};
  run.options.smooth = {.gain = 0.3, .top = 1};
  const MethodResult result = run_method(backend, run);
  ASSERT_TRUE(result.finished);
  EXPECT_TRUE(backend.plans[0].mixtures.empty()) << "nothing has been predicted yet";
  std::size_t mixed = 0;
  for (const StepPlan& plan : backend.plans)
    for (const RowMixture& mixture : plan.mixtures) {
      EXPECT_EQ(plan.rows[static_cast<std::size_t>(mixture.row)].token, 99);
      ++mixed;
    }
  EXPECT_GT(mixed, 0u);
}

// dInfer forwards a window right after the full pass, even if that pass has decided it, and learns from what follows
// the window.
TEST(SoftMasks, UnderCompatAPassFollowsTheFullOne) {
  const auto shape = [](const std::string& cache, bool compat) {
    FakeBackend backend(masked_desc());
    backend.tops = true;
    MethodRun run{.cache = cache};
    run.config["threshold"] = 0.0;
    run.options.compat = compat;
    run.options.smooth = {.gain = 0.3, .per_pass = 1, .top = 1};  // from the second pass on no threshold is left
    const MethodResult result = run_method(backend, run);
    EXPECT_TRUE(result.finished);
    std::string passes;
    for (std::size_t i = 0; i < result.steps.size(); ++i)
      passes += std::to_string(backend.plans[i].rows.size()) + (result.steps[i].edits.empty() ? "i " : " ");
    return passes;
  };
  EXPECT_EQ(shape("prefix", false), "29 24 29 29 ");
  EXPECT_EQ(shape("prefix", true), "29 24 29 16i 29 ");
  EXPECT_EQ(shape("dual", true), "29 8 29 29 ") << "the window has no mask to learn from";
  EXPECT_EQ(shape("none", true), "29 29 29 29 ");
}

TEST(SoftMasks, OffTheyChangeNothing) {
  FakeBackend a(masked_desc()), b(masked_desc());
  MethodRun run;
  const MethodResult plain = run_method(a, run);
  run.options.smooth = {.gain = 0, .first = 1, .per_pass = 1, .top = 3};
  EXPECT_EQ(run_method(b, run).tokens, plain.tokens);
}

}  // namespace
}  // namespace dllm
