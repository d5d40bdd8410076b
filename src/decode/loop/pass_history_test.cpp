// What cache policies are told of the passes before, against what the passes showed and predicted.
#include "decode/loop/pass_history.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::masked_desc;
using test::MethodRun;

/// Recomputes everything, and notes what it is told.
class Witness : public CachePolicy {
 public:
  struct Pass {
    std::vector<std::pair<TokenId, bool>> canvas;  ///< by position: the token, and whether it is masked
    std::vector<Candidate> predicted;
    std::vector<std::int32_t> ages;
  };
  explicit Witness(std::vector<Pass>& passes) : passes_(passes) {}

  CacheDecision decide(const CacheContext& context) override {
    Pass& pass = passes_.emplace_back();
    pass.predicted.assign(context.predicted.begin(), context.predicted.end());
    for (Position p = 0; p < context.canvas.size(); ++p) {
      pass.canvas.emplace_back(context.canvas.token(p), context.canvas.masked(p));
      pass.ages.push_back(context.age(p));
    }
    return {positions({0, context.horizon}), {{0, context.horizon}}};
  }

 private:
  std::vector<Pass>& passes_;
};

/// Passes since the position last changed, from the canvases of all passes so far.
std::int32_t age_of(const std::vector<Witness::Pass>& passes, std::size_t now, std::size_t position) {
  if (passes[now].canvas[position].second) return -1;
  std::size_t first = now;
  while (first > 0 && passes[first].canvas[position] == passes[first - 1].canvas[position]) --first;
  return first == 0 ? -1 : static_cast<std::int32_t>(now - first);
}

TEST(PassHistory, TellsPredictionsAndAgesOfTokens) {
  std::size_t revised = 0, masked_again = 0;
  for (const std::string decoder : {"threshold", "low-confidence", "revision", "draft-edit", "hierarchical-remask"})
    for (const std::string window : {"block", "sliding", "whole"}) {
      SCOPED_TRACE(decoder + ' ' + window);
      FakeBackend backend(masked_desc());
      std::vector<std::map<Position, RowScore>> scores;  // by pass
      backend.observe = [&](const SequenceStep&) { scores.emplace_back(); };
      backend.tamper = [&](RowScore& score) { scores.back()[score.position] = score; };
      MethodRun run{.window = window, .decoder = decoder};
      run.config["edit_threshold"] = run.config["visible_threshold"] = 0.3;
      std::vector<Witness::Pass> passes;
      ASSERT_TRUE(test::run_method(backend, run, std::make_unique<Witness>(passes)).finished);
      ASSERT_GT(passes.size(), 3u);
      EXPECT_TRUE(passes[0].predicted.empty());
      for (std::size_t i = 0; i < passes.size(); ++i) {
        SCOPED_TRACE(i);
        for (std::size_t p = 0; p < passes[i].canvas.size(); ++p) EXPECT_EQ(passes[i].ages[p], age_of(passes, i, p));
        if (i == 0) continue;
        ASSERT_EQ(passes[i].predicted.size(), scores[i - 1].size());
        auto score = scores[i - 1].begin();
        for (const Candidate& candidate : passes[i].predicted) {
          EXPECT_EQ(candidate.position, score->first);
          EXPECT_EQ(candidate.token, score->second.token);
          EXPECT_EQ(candidate.entropy, score->second.entropy);
          EXPECT_TRUE(candidate.queried.empty() && candidate.top.empty());
          ++score;
          const auto at = static_cast<std::size_t>(candidate.position);
          const auto &before = passes[i - 1].canvas[at], &now = passes[i].canvas[at];
          revised += !before.second && !now.second && before != now ? 1 : 0;
          masked_again += !before.second && now.second ? 1 : 0;
        }
      }
    }
  EXPECT_GT(revised, 0u);
  EXPECT_GT(masked_again, 0u);
}

TEST(PassHistory, APromptHasNoAge) {
  Canvas canvas({1, 2}, 3, 99);
  PassHistory history(canvas);
  canvas.apply({.position = 3, .token = 7});
  history.end_pass(canvas);
  canvas.apply({.position = 2, .token = 8});
  history.end_pass(canvas);
  EXPECT_EQ(std::vector<std::int32_t>(history.ages().begin(), history.ages().end()),
            (std::vector<std::int32_t>{-1, -1, 0, 1, -1}));
}

}  // namespace
}  // namespace dllm
