// Variants in the loop: each is predicted as if it were a request of its own, and nothing else changes.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>

#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::masked_desc;
using test::MethodResult;
using test::MethodRun;

/// The threshold rule, with variants: one without the window's last token, one with another first token, one with a
/// token more. It does nothing with what they predict but note it.
class Varying : public Decoder {
 public:
  struct Pass {
    std::vector<std::vector<Edit>> edits;
    std::vector<std::vector<Candidate>> told;
    std::vector<std::vector<TokenId>> canvases;
    std::vector<std::vector<Position>> masks;
  };
  explicit Varying(std::vector<Pass>& passes)
      : passes_(passes), rule_(test::decoder_of("threshold", {{"threshold", 0.6}})) {}

  std::vector<std::vector<Edit>> variants(const DecodeContext& context) override {
    std::vector<std::vector<Edit>> result;
    std::vector<Position> decided = generated_positions(context), masks;
    std::erase_if(decided, [&](Position p) { return context.canvas.masked(p); });
    for (Position p = context.window.begin; p < context.window.end; ++p)
      if (context.canvas.masked(p)) masks.push_back(p);
    if (!decided.empty()) {
      result.push_back({{decided.back(), context.canvas.mask(), EditKind::kRemask}});
      result.push_back({{decided.front(), 47, EditKind::kRevise}});
    }
    if (masks.size() > 1) result.push_back({{masks.back(), 33, EditKind::kCommit}});
    Pass& pass = passes_.emplace_back();
    pass.edits = result;
    for (const auto& edits : result) {
      Canvas canvas = context.canvas;
      for (const Edit& edit : edits) canvas.apply(edit);
      auto& tokens = pass.canvases.emplace_back();
      auto& masked = pass.masks.emplace_back();
      for (Position p = 0; p < canvas.size(); ++p) {
        tokens.push_back(canvas.token(p));
        if (context.window.contains(p) && canvas.masked(p)) masked.push_back(p);
      }
    }
    return result;
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    passes_.back().told.assign(context.variants.begin(), context.variants.end());
    return rule_->decode(context, candidates);
  }

 private:
  std::vector<Pass>& passes_;
  std::unique_ptr<Decoder> rule_;
};

/// A request whose decoder has variants, and a second backend for the requests that they would be.
struct VaryingRun {
  VaryingRun(const MethodRun& run, std::int32_t shift_by) : shift(shift_by), desc(masked_desc(0, shift_by)) {
    Canvas canvas = test::canvas_of(run, desc);
    size = canvas.size();
    cache = *backend.make_cache(size);
    DenoiseOptions options = run.options;
    for (int i = 0; i < 3; ++i) {
      branches.push_back(*backend.make_cache(size));
      options.branches.push_back(branches.back().get());
    }
    Method method = test::method_of(run);
    method.decoder = std::make_unique<Varying>(passes);
    denoiser = std::make_unique<Denoiser>(desc, std::move(canvas), std::move(method), options, *cache, nullptr);
  }

  /// Caches of requests that made the same passes, but show their own canvas now.
  std::vector<std::unique_ptr<KvCache>> separate_caches(std::size_t count) {
    std::vector<Position> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    std::vector<std::unique_ptr<KvCache>> result;
    for (std::size_t i = 0; i < count; ++i) {
      result.push_back(*apart.make_cache(size));
      FakeBackend::copy_rows(*cache, *result.back(), all);
    }
    return result;
  }

  void check_step(SequenceStep step, KvCache& separate, const Scores& scores, const std::vector<TokenId>& canvas) {
    for (const PlanRow& row : step.plan.rows) EXPECT_EQ(row.token, canvas[static_cast<std::size_t>(row.position)]);
    rows += static_cast<std::int64_t>(step.plan.rows.size());
    step.cache = &separate;
    const Scores expected = (*apart.forward({&step, 1}))[0];
    ASSERT_EQ(scores.rows.size(), expected.rows.size());
    for (std::size_t r = 0; r < expected.rows.size(); ++r) {
      EXPECT_EQ(scores.rows[r].token, expected.rows[r].token);
      EXPECT_EQ(scores.rows[r].confidence, expected.rows[r].confidence);
    }
    ++checked;
  }

  void check_told(const std::vector<Candidate>& told, const std::vector<Position>& masks, const Scores& scores) const {
    std::vector<Position> at;
    for (const Candidate& candidate : told) at.push_back(candidate.position);
    EXPECT_EQ(at, masks);
    for (const Candidate& candidate : told)
      EXPECT_TRUE(std::ranges::any_of(scores.rows, [&](const RowScore& row) {
        return row.position == std::max<Position>(0, candidate.position - shift) && row.token == candidate.token;
      }));
  }

  void decode() {
    for (auto batch = denoiser->prepare(); !batch.empty(); batch = denoiser->prepare()) {
      own.push_back(batch[0].plan);
      for (const SequenceStep& step : batch)
        EXPECT_EQ(std::ranges::adjacent_find(step.plan.scored, std::ranges::greater_equal{}), step.plan.scored.end())
            << "rows are scored once, in their order";
      const auto separate = separate_caches(batch.size() - 1);
      const auto scores = *backend.forward(batch);
      const Varying::Pass pass = passes.back();
      for (std::size_t i = 1; i < batch.size(); ++i) {
        for (const Edit& edit : pass.edits[i - 1])
          EXPECT_EQ(batch[i].cache->token_of(edit.position),
                    pass.canvases[i - 1][static_cast<std::size_t>(edit.position)])
              << "what it changes is seen";
        check_step(batch[i], *separate[i - 1], scores[i], pass.canvases[i - 1]);
      }
      ASSERT_TRUE(denoiser->absorb(scores));
      const Varying::Pass& told = passes[own.size() - 1];
      ASSERT_EQ(told.told.size(), pass.edits.size());
      for (std::size_t i = 0; i < pass.edits.size(); ++i) check_told(told.told[i], pass.masks[i], scores[i + 1]);
      ASSERT_LT(denoiser->counters().nfe, 300);
    }
  }

  std::int32_t shift;
  ModelDesc desc;
  FakeBackend backend{desc}, apart{desc};
  Position size = 0;
  std::vector<Varying::Pass> passes{};
  std::vector<std::unique_ptr<KvCache>> branches{};
  std::unique_ptr<KvCache> cache{};
  std::unique_ptr<Denoiser> denoiser{};
  std::vector<StepPlan> own{};  ///< of the request itself
  std::int64_t rows = 0;        ///< of variants
  std::size_t checked = 0;
};

void check_variants(const MethodRun& run, std::int32_t shift) {
  VaryingRun varying(run, shift);
  varying.decode();
  EXPECT_GT(varying.checked, 10u);
  MethodRun plain = run;
  plain.config["threshold"] = 0.6;
  FakeBackend other(varying.desc);
  const MethodResult expected = test::run_method(other, plain);
  std::vector<TokenId> tokens;
  for (Position p = 0; p < varying.size; ++p) tokens.push_back(varying.denoiser->canvas().token(p));
  EXPECT_EQ(tokens, expected.tokens);
  const DenoiseCounters& counters = varying.denoiser->counters();
  EXPECT_EQ(counters.nfe, expected.counters.nfe) << "one pass, however many variants";
  EXPECT_EQ(counters.rows_forwarded, expected.counters.rows_forwarded + varying.rows);
  ASSERT_EQ(varying.own.size(), other.plans.size());
  for (std::size_t i = 0; i < other.plans.size(); ++i) {
    EXPECT_EQ(varying.own[i].rows, other.plans[i].rows);
    EXPECT_EQ(varying.own[i].visible, other.plans[i].visible);
  }
}

TEST(Variants, ArePredictedApartAndChangeNothing) {
  for (const auto& window : method_names(windows()))
    for (const auto& cache : method_names(caches()))
      for (const std::int32_t shift : {0, 1})
        for (const Position prompt : {5, 0}) {  // without a prompt, positions 0 and 1 share a row in shifted models
          SCOPED_TRACE(fmt::format("{} {} shift {} prompt {}", window, cache, shift, prompt));
          if (!test::suits(**find_method(caches(), cache), masked_desc())) continue;
          check_variants({.window = window, .cache = cache, .prompt = prompt}, shift);
        }
}

/// Predictions of one position that decide how sure the rest is: the likelier token is the worse one.
TEST(OrderToken, FindsTheLikelierText) {
  constexpr Position kFork = 7;
  FakeBackend backend(masked_desc());
  TokenId shown = 99;
  backend.observe = [&](const SequenceStep& step) {
    for (const PlanRow& row : step.plan.rows)
      if (row.position == kFork) shown = row.token;
  };
  backend.tamper = [&](RowScore& score) {
    score.token = score.position == kFork ? 1 : 10 + score.position;
    const double best = score.position == kFork ? 0.6 : shown == 2 ? 0.95 : shown == 1 ? 0.5 : 0.4;
    score.confidence = best - 0.001 * score.position;
    score.log_odds = std::log(score.confidence / (1 - score.confidence));
    score.logit = 0;
  };
  backend.list = [](const RowScore& score) {
    return std::vector<TopToken>{{score.token, 0.F}, {99, -0.1F}, {score.position == kFork ? 2 : 3, -0.4F}};
  };
  for (const char* cache : {"none", "dual"}) {
    MethodRun run{.cache = cache, .decoder = "order-token", .config = {{"threshold", 0.9}}};
    Canvas canvas = test::canvas_of(run, backend.desc());
    std::vector<std::unique_ptr<KvCache>> caches;
    for (int i = 0; i < 4; ++i) {
      caches.push_back(*backend.make_cache(canvas.size()));
      if (i > 0) run.options.branches.push_back(caches.back().get());
    }
    Denoiser denoiser(backend.desc(), std::move(canvas), test::method_of(run), run.options, *caches[0], nullptr);
    for (auto batch = denoiser.prepare(); !batch.empty(); batch = denoiser.prepare()) {
      ASSERT_TRUE(denoiser.absorb(*backend.forward(batch)));
      ASSERT_LT(denoiser.counters().nfe, 100);
    }
    EXPECT_EQ(denoiser.canvas().token(kFork), 2) << cache;
    EXPECT_EQ(denoiser.canvas().token(kFork + 1), 10 + kFork + 1);
    run.decoder = "threshold";
    EXPECT_EQ(test::run_method(backend, run).tokens[kFork], 1) << "alone it takes the likelier token";
  }
}

/// Where predictions do not depend on what is decided, the rule's own tokens are the likeliest.
TEST(OrderToken, EndsWithEveryWindowAndCache) {
  for (const auto& window : method_names(windows()))
    for (const auto& cache : method_names(caches()))
      for (const bool steady : {false, true}) {
        SCOPED_TRACE(window + ' ' + cache);
        if (!test::suits(**find_method(caches(), cache), masked_desc())) continue;
        FakeBackend backend(masked_desc());
        backend.list = [](const RowScore& score) {
          return std::vector<TopToken>{{score.token, score.logit}, {(score.token + 1) % 48, score.logit - 1}};
        };
        backend.tamper = [&](RowScore& score) {
          if (steady) {
            score.token = score.position + 1;
            score.confidence = 0.55 + 0.01 * ((score.position * 7) % 11);
            score.log_odds = std::log(score.confidence / (1 - score.confidence));
          }
        };
        MethodRun run{.window = window, .cache = cache, .decoder = "order-token"};
        Canvas canvas = test::canvas_of(run, backend.desc());
        std::vector<std::unique_ptr<KvCache>> caches;
        for (int i = 0; i < 4; ++i) {
          caches.push_back(*backend.make_cache(canvas.size()));
          if (i > 0) run.options.branches.push_back(caches.back().get());
        }
        Denoiser denoiser(backend.desc(), std::move(canvas), test::method_of(run), run.options, *caches[0], nullptr);
        std::size_t most = 0;
        for (auto batch = denoiser.prepare(); !batch.empty(); batch = denoiser.prepare()) {
          most = std::max(most, batch.size());
          ASSERT_TRUE(denoiser.absorb(*backend.forward(batch)));
          ASSERT_LE(denoiser.counters().nfe, 100);
        }
        EXPECT_EQ(denoiser.canvas().masked_count(), 0);
        EXPECT_GE(most, 3u);
        EXPECT_LE(most, 4u);
        if (!steady) continue;
        for (Position p = run.prompt; p < denoiser.canvas().size(); ++p) EXPECT_EQ(denoiser.canvas().token(p), p + 1);
      }
}

}  // namespace
}  // namespace dllm
