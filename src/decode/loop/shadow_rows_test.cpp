// Shadow rows in the loop: what a decoder that asks for them is told, and that nothing else changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::masked_desc;
using test::MethodResult;
using test::MethodRun;

/// The threshold rule, which asks about all tokens of the window and does nothing with the answers but note them.
class Asking : public Decoder {
 public:
  struct Pass {
    std::vector<Position> asked;
    std::vector<Candidate> told;
    std::vector<float> queried;
    std::vector<TokenId> tokens;  ///< of the canvas, where it asked
  };
  explicit Asking(std::vector<Pass>& passes)
      : passes_(passes), rule_(test::decoder_of("threshold", {{"threshold", 0.6}})) {}

  std::vector<Position> shadowed(const DecodeContext& context) override {
    Pass& pass = passes_.emplace_back();
    for (const Position p : generated_positions(context))
      if (!context.canvas.masked(p)) {
        pass.asked.push_back(p);
        pass.tokens.push_back(context.canvas.token(p));
      }
    return pass.asked;
  }

  std::vector<TokenQuery> queries(const DecodeContext& context) override {
    return {{rule_->wanted(context).front(), 3}};  // its answers precede those of the shadow rows
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    EXPECT_EQ(candidates.front().queried.size(), 1u);
    Pass& pass = passes_.back();
    pass.told.assign(context.shadows.begin(), context.shadows.end());
    for (const Candidate& candidate : context.shadows)
      pass.queried.insert(pass.queried.end(), candidate.queried.begin(), candidate.queried.end());
    return rule_->decode(context, candidates);
  }

 private:
  std::vector<Pass>& passes_;
  std::unique_ptr<Decoder> rule_;
};

struct Ran {
  std::vector<Asking::Pass> passes;
  std::vector<StepPlan> plans;
  std::vector<TokenId> tokens;
  DenoiseCounters counters;
};

Ran run_asking(const MethodRun& run, std::int32_t shift, const std::function<void(RowScore&)>& tamper = {}) {
  Ran result;
  FakeBackend backend(masked_desc(0, shift));
  backend.tamper = tamper;
  Canvas canvas = test::canvas_of(run, backend.desc());
  Method method = test::method_of(run);
  method.decoder = std::make_unique<Asking>(result.passes);
  const auto cache = *backend.make_cache(canvas.size()), unguided = *backend.make_cache(canvas.size());
  Denoiser denoiser(backend.desc(), std::move(canvas), std::move(method), run.options, *cache,
                    run.options.cfg_scale != 0 ? unguided.get() : nullptr);
  for (auto batch = denoiser.prepare(); !batch.empty(); batch = denoiser.prepare()) {
    EXPECT_TRUE(denoiser.absorb(*backend.forward(batch)));
    if (denoiser.counters().nfe > 500) break;
  }
  for (Position p = 0; p < denoiser.canvas().size(); ++p) result.tokens.push_back(denoiser.canvas().token(p));
  result.plans = backend.plans;
  result.counters = denoiser.counters();
  return result;
}

TEST(ShadowRows, ChangeNothingElse) {
  for (const auto& window : method_names(windows()))
    for (const auto& cache : method_names(caches()))
      for (const std::int32_t shift : {0, 1}) {
        SCOPED_TRACE(window + ' ' + cache + " shift " + std::to_string(shift));
        MethodRun run{.window = window, .cache = cache};
        if (!test::suits(**find_method(caches(), cache), masked_desc())) continue;
        const Ran asking = run_asking(run, shift);
        run.config["threshold"] = 0.6;
        FakeBackend backend(masked_desc(0, shift));
        const MethodResult plain = test::run_method(backend, run);
        EXPECT_EQ(asking.tokens, plain.tokens);
        EXPECT_EQ(asking.counters.nfe, plain.counters.nfe);
        ASSERT_EQ(asking.plans.size(), backend.plans.size());
        std::int64_t shadows = 0;
        for (std::size_t i = 0; i < backend.plans.size(); ++i) {
          EXPECT_EQ(asking.plans[i].rows, backend.plans[i].rows);
          EXPECT_EQ(asking.plans[i].visible, backend.plans[i].visible);
          shadows += static_cast<std::int64_t>(asking.plans[i].shadows.size());
        }
        EXPECT_GT(shadows, 0);
        EXPECT_EQ(asking.counters.rows_forwarded, plain.counters.rows_forwarded + shadows);
        EXPECT_EQ(asking.counters.rows_scored, plain.counters.rows_scored + shadows);
      }
}

TEST(ShadowRows, DoNotSeeWhatTheyPredict) {
  for (const std::int32_t shift : {0, 1}) {
    const Ran ran = run_asking({.cache = "dual"}, shift);
    ASSERT_EQ(ran.passes.size(), ran.plans.size());
    std::size_t shadows = 0;
    for (std::size_t i = 0; i < ran.plans.size(); ++i) {
      const StepPlan& plan = ran.plans[i];
      ASSERT_EQ(plan.shadows.size(), ran.passes[i].asked.size());
      for (std::size_t s = 0; s < plan.shadows.size(); ++s, ++shadows) {
        const Position p = ran.passes[i].asked[s];
        const ShadowRow& shadow = plan.shadows[s];
        EXPECT_EQ(shadow.row.position, p - shift);
        if (shift == 0) {
          EXPECT_EQ(shadow.row.token, 99) << "the mask";
        }
        Position seen = 0, all = 0;
        for (const PositionRange& range : shadow.visible) {
          EXPECT_FALSE(range.contains(p));
          EXPECT_GT(range.size(), 0);
          seen += range.size();
        }
        for (const PositionRange& range : plan.visible) all += range.size();
        EXPECT_EQ(seen, all - 1) << "everything else";
      }
    }
    EXPECT_GT(shadows, 20u);
  }
}

TEST(ShadowRows, TheirPredictionsComeWithTheLogitOfTheToken) {
  for (const std::int32_t shift : {0, 1}) {
    std::map<std::pair<Position, double>, RowScore> reported;
    const Ran ran = run_asking({}, shift, [&](RowScore& score) { reported[{score.position, score.log_odds}] = score; });
    std::size_t told = 0;
    for (const Asking::Pass& pass : ran.passes) {
      ASSERT_EQ(pass.told.size(), pass.asked.size());
      ASSERT_EQ(pass.queried.size(), pass.asked.size());
      for (std::size_t i = 0; i < pass.told.size(); ++i, ++told) {
        const Candidate& one = pass.told[i];
        EXPECT_EQ(one.position, pass.asked[i]);
        const auto score = reported.find({one.position - shift, one.log_odds});
        ASSERT_NE(score, reported.end());
        EXPECT_EQ(one.token, score->second.token);
        EXPECT_EQ(one.confidence, score->second.confidence);
        const double probability =
            one.confidence * std::exp(static_cast<double>(pass.queried[i]) - static_cast<double>(one.logit));
        if (one.token == pass.tokens[i]) {
          EXPECT_EQ(pass.queried[i], one.logit);
        } else {
          EXPECT_LT(probability, 1 - one.confidence + 1e-9) << "it shares what the prediction leaves";
        }
      }
    }
    EXPECT_GT(told, 20u);
  }
}

// Under guidance both sequences score the same rows, and the unconditional one does not see the prompt.
TEST(ShadowRows, OfBothSequencesUnderGuidance) {
  MethodRun run;
  run.options.cfg_scale = 0.5;
  const Ran ran = run_asking(run, 1);
  std::size_t masked = 0;
  for (std::size_t i = 0; i + 1 < ran.plans.size(); i += 2) {
    const StepPlan &one = ran.plans[i], &other = ran.plans[i + 1];
    ASSERT_EQ(one.scored, other.scored);
    ASSERT_EQ(one.shadows.size(), other.shadows.size());
    for (std::size_t s = 0; s < one.shadows.size(); ++s) {
      EXPECT_EQ(one.shadows[s].visible, other.shadows[s].visible);
      const bool prompt = one.shadows[s].row.position < run.prompt;
      EXPECT_EQ(other.shadows[s].row.token, prompt ? 99 : one.shadows[s].row.token);
      masked += prompt ? 1 : 0;
    }
  }
  EXPECT_GT(masked, 0u) << "the answer's first position is predicted from the prompt's last row";
}

}  // namespace
}  // namespace dllm
