// The samplers of Nemotron-Labs-Diffusion on worked examples.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "decode/testing/make_method.h"

namespace dllm {
namespace {

/// What a decoder commits of masks with these confidences, by index, in the given step of the window.
std::set<int> kept(const std::string& name, const OptionMap& options, const std::vector<double>& confidences,
                   std::int32_t step = 0) {
  const auto count = static_cast<Position>(confidences.size());
  const Canvas canvas({1}, count, 99);
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < confidences.size(); ++i) {
    Candidate candidate;
    candidate.position = 1 + static_cast<Position>(i);
    candidate.token = 7;
    candidate.confidence = confidences[i];
    candidate.log_odds = std::log(confidences[i] / (1 - confidences[i]));
    candidates.push_back(candidate);
  }
  const DecodeContext context{canvas, {1, 1 + count}, step, count, 0, {}};
  std::set<int> result;
  for (const Edit& edit : test::decoder_of(name, options, count)->decode(context, candidates))
    result.insert(edit.position - 1);
  return result;
}

using I = std::set<int>;

TEST(NemotronDecoders, NativeTakesTheThresholdItself) {
  EXPECT_EQ(kept("native", {}, {0.2, 0.9, 0.95, 0.89}), (I{1, 2}));
  EXPECT_EQ(kept("native", {}, {0.2, 0.3, 0.25}), (I{1}));
  const OptionMap passes = {{"block_passes", 3}};
  EXPECT_EQ(kept("native", passes, {0.2, 0.3, 0.25}, 1), (I{1}));
  EXPECT_EQ(kept("native", passes, {0.2, 0.3, 0.25}, 2), (I{0, 1, 2})) << "the last pass";
}

TEST(NemotronDecoders, ConfidenceRefNeedsBothRules) {
  // Factor 1: 1 - 1/3 and 1 - 1/4 for the second and third.
  EXPECT_EQ(kept("confidence-ref", {{"threshold", 0.5}}, {0.9, 0.7, 0.74, 0.6}), (I{0, 2}));
  EXPECT_EQ(kept("confidence-ref", {{"threshold", 0.5}, {"factor", 2.0}}, {0.9, 0.7, 0.74, 0.6}), (I{0, 1, 2, 3}));
  EXPECT_EQ(kept("confidence-ref", {{"threshold", 0.72}, {"factor", 2.0}}, {0.9, 0.7, 0.74, 0.6}), (I{0, 2}));
  EXPECT_EQ(kept("confidence-ref", {}, {0.4, 0.5}), (I{1}));
}

TEST(NemotronDecoders, CumulativeErrorMultiplies) {
  // 0.99, 0.9702, 0.92169, 0.8295...
  EXPECT_EQ(kept("cumulative-error", {}, {0.98, 0.95, 0.99, 0.9}), (I{0, 1, 2}));
  EXPECT_EQ(kept("cumulative-error", {{"threshold", 0.8}}, {0.98, 0.95, 0.99, 0.9}), (I{0, 1, 2, 3}));
  EXPECT_EQ(kept("cumulative-error", {}, {0.3, 0.5}), (I{1}));
}

TEST(NemotronDecoders, ConfidenceBoundHasTwoWaysIn) {
  // Factor 2: 1/3, 1/2 and 3/5 for the second to fourth, and never below 0.45.
  EXPECT_EQ(kept("confidence-bound", {}, {0.8, 0.46, 0.44}), (I{0, 1}));
  EXPECT_EQ(kept("confidence-bound", {}, {0.8, 0.7, 0.55, 0.58}), (I{0, 1, 3}));
  EXPECT_EQ(kept("confidence-bound", {}, {0.95, 0.94, 0.93, 0.92, 0.1}), (I{0, 1, 2, 3}));
  EXPECT_EQ(kept("confidence-bound", {{"min_threshold", 0.3}}, {0.8, 0.35, 0.44}), (I{0, 2}));
}

}  // namespace
}  // namespace dllm
