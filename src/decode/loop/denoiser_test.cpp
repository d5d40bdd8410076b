#include "decode/loop/denoiser.h"

#include <gtest/gtest.h>

#include <limits>

#include "decode/registry.h"
#include "decode/testing/fake_backend.h"
#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::masked_desc;
using test::MethodResult;
using test::MethodRun;
using test::suits;

/// run_method(), and every pass made progress. `policy`: instead of the one that the run names.
MethodResult run(FakeBackend& backend, const MethodRun& method, std::unique_ptr<CachePolicy> policy = nullptr) {
  MethodResult result = test::run_method(backend, method, std::move(policy));
  EXPECT_TRUE(result.finished) << "the loop does not end";
  // A pass may only review, or only draft.
  const bool may_look_only = test::decoder_of(method.decoder, {}, method.grid.length)->revises() ||
                             traits_of(decoders(), {method.decoder, {}}).checks > 0;
  for (const DenoiseStep& step : result.steps)
    EXPECT_FALSE(step.edits.empty() && !may_look_only) << "a pass without progress";
  return result;
}

TEST(Denoiser, EveryCombinationFinishes) {
  for (const auto& window : method_names(windows()))
    for (const auto& cache : method_names(caches()))
      for (const auto& decoder : method_names(decoders()))
        for (std::int32_t shift : {0, 1}) {
          FakeBackend backend(masked_desc(0, shift));
          SCOPED_TRACE(window + ' ' + cache + ' ' + decoder + ' ' + std::to_string(shift));
          MethodRun scenario{.window = window, .cache = cache, .decoder = decoder};
          const MethodResult result = run(backend, scenario);
          for (TokenId token : result.tokens) EXPECT_NE(token, 99) << window << ' ' << cache << ' ' << decoder;
        }
}

TEST(Denoiser, BlocksTileFromThePromptOrFromZero) {
  FakeBackend backend(masked_desc());
  MethodRun scenario;
  scenario.prompt = 40;
  scenario.grid.block_length = 32;
  EXPECT_EQ(run(backend, scenario).steps.front().window, (PositionRange{40, 64}));  // clipped: 40 + 24
  scenario.grid.length = 64;
  EXPECT_EQ(run(backend, scenario).steps.front().window, (PositionRange{40, 72}));
  scenario.grid.origin = BlockOrigin::kAbsolute;
  EXPECT_EQ(run(backend, scenario).steps.front().window, (PositionRange{32, 64}));
}

TEST(Denoiser, ThresholdAboveOneIsOneTokenPerPass) {
  FakeBackend backend(masked_desc());
  MethodRun one_by_one;
  one_by_one.config["threshold"] = 1.1;
  MethodRun fixed{.decoder = "low-confidence"};
  const MethodResult a = run(backend, one_by_one), b = run(backend, fixed);
  EXPECT_EQ(a.counters.nfe, 24);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.commit_pass, b.commit_pass);
}

TEST(Denoiser, WholeWindowEqualsOneBlock) {
  FakeBackend backend(masked_desc());
  MethodRun whole{.window = "whole"};
  MethodRun block;
  block.grid.block_length = 24;
  EXPECT_EQ(run(backend, whole).tokens, run(backend, block).tokens);
}

TEST(CachePolicies, RowsOfPrefixAndDual) {
  for (const std::int32_t shift : {0, 1}) {
    FakeBackend backend(masked_desc(0, shift));
    MethodRun scenario{.cache = "prefix", .decoder = "low-confidence"};
    run(backend, scenario);
    ASSERT_EQ(backend.plans.size(), 24u);
    EXPECT_EQ(backend.plans[0].rows.size(), 29u) << "the first pass of a block is full";
    EXPECT_EQ(backend.plans[1].rows.size(), static_cast<std::size_t>(24 + shift));
    EXPECT_EQ(backend.plans[8].rows.size(), 29u);
    EXPECT_EQ(backend.plans[9].rows.size(), static_cast<std::size_t>(16 + shift));
    backend.plans.clear();
    scenario.cache = "dual";
    run(backend, scenario);
    EXPECT_EQ(backend.plans[1].rows.size(), static_cast<std::size_t>(8 + shift));
    EXPECT_EQ(backend.plans[1].rows.front().position, 5 - shift);
    EXPECT_EQ(backend.plans[9].rows.size(), static_cast<std::size_t>(8 + shift));
  }
}

TEST(CachePolicies, OnlyTheWantedRowsAreScored) {
  FakeBackend backend(masked_desc(0, 1));
  MethodRun scenario{.decoder = "low-confidence"};
  run(backend, scenario);
  for (std::size_t i = 0; i < backend.plans.size(); ++i)
    EXPECT_EQ(backend.plans[i].scored.size(), 8 - i % 8) << "masks of the block, pass " << i;
}

// Recomputing everything and the exact cache must agree, whatever the grid; the fake's predictions depend on every
// token and every stale row they see.
TEST(CachePolicies, BlockCausalCacheIsExact) {
  for (const std::int32_t block : {1, 4, 8})
    for (const Position prompt : {1, 5, 8, 13})
      for (const auto& decoder : method_names(decoders()))
        for (const std::int32_t shift : {0, 1}) {
          SCOPED_TRACE(decoder + " shift " + std::to_string(shift));
          FakeBackend backend(masked_desc(block, shift));
          MethodRun scenario{.decoder = decoder};
          scenario.grid = {BlockOrigin::kAbsolute, block, nullptr, 24};
          scenario.prompt = prompt;
          const MethodResult uncached = run(backend, scenario);
          scenario.cache = "block-causal";
          const MethodResult cached = run(backend, scenario);
          EXPECT_EQ(uncached.tokens, cached.tokens) << "block " << block << " prompt " << prompt;
          EXPECT_EQ(uncached.commit_pass, cached.commit_pass);
          EXPECT_LT(cached.counters.rows_forwarded, uncached.counters.rows_forwarded);
        }
}

/// The dual cache with settled rows, by definition: it counts the forwards of every committed token itself and does not
/// query the cache.
class SettledReference : public CachePolicy {
 public:
  explicit SettledReference(std::int32_t settle) : settle_(settle) {}

  CacheDecision decide(const CacheContext& context) override {
    const Position size = context.canvas.size();
    committed_forwards_.resize(static_cast<std::size_t>(size), 0);
    CacheDecision decision;
    decision.visible = {{0, size}};
    for (Position p = 0; p < size; ++p) {
      bool wanted = false;
      for (const Position w : context.wanted) wanted = wanted || w == p;
      std::int32_t& forwards = committed_forwards_[static_cast<std::size_t>(p)];
      const bool in_window = context.needed.contains(p);
      const bool again = forwards < settle_ || wanted;
      if (context.window_changed || (in_window && again)) decision.rows.push_back(p);
      // A row's age also grows in passes that leave it out.
      if (!context.canvas.masked(p) && (forwards > 0 || context.window_changed || in_window)) ++forwards;
    }
    return decision;
  }

 private:
  std::int32_t settle_;
  std::vector<std::int32_t> committed_forwards_;
};

// --keep-front: the first position of the window keeps the prediction of the window's first pass.
TEST(CachePolicies, AKeptFrontLeavesItsRowOut) {
  MethodRun scenario{.cache = "dual", .decoder = "low-confidence"};
  FakeBackend again(masked_desc(0, 1)), kept(masked_desc(0, 1));
  run(again, scenario);
  scenario.cache_config["keep_front"] = true;
  run(kept, scenario);
  ASSERT_EQ(kept.plans.size(), again.plans.size());
  EXPECT_EQ(kept.plans[0].rows, again.plans[0].rows) << "the first pass of a window is as it was";
  int left_out = 0;
  for (std::size_t i = 0; i < kept.plans.size(); ++i) {
    const Position front = 5 + 8 * static_cast<Position>(i / 8) - 1;
    const bool has = std::any_of(kept.plans[i].rows.begin(), kept.plans[i].rows.end(),
                                 [&](const PlanRow& row) { return row.position == front; });
    // If the first position is the only mask left, there is nothing else to forward.
    if (i % 8 == 0 || has) continue;
    ++left_out;
    EXPECT_EQ(kept.plans[i].rows.size(), 8u);
  }
  EXPECT_GE(left_out, 18);
}

// Nothing before a block can change in a block-causal model, so the kept prediction is
// exact.
TEST(CachePolicies, AKeptFrontIsExactUnderBlockCausalAttention) {
  for (const std::int32_t block : {4, 8})
    for (const Position prompt : {1, 5, 8, 13})
      for (const auto& decoder : method_names(decoders())) {
        FakeBackend backend(masked_desc(block, 1));
        MethodRun scenario{.cache = "block-causal", .decoder = decoder};
        scenario.grid = {BlockOrigin::kAbsolute, block, nullptr, 24};
        scenario.prompt = prompt;
        const MethodResult again = run(backend, scenario);
        scenario.cache_config["keep_front"] = true;
        const MethodResult kept = run(backend, scenario);
        EXPECT_EQ(again.tokens, kept.tokens) << decoder << " block " << block << " prompt " << prompt;
        EXPECT_EQ(again.commit_pass, kept.commit_pass);
        EXPECT_LE(kept.counters.rows_forwarded, again.counters.rows_forwarded);
        if (decoder == "low-confidence") {
          EXPECT_LT(kept.counters.rows_forwarded, again.counters.rows_forwarded);
        }
      }
}

TEST(CachePolicies, SettledRowsAreLeftOutAndNothingElse) {
  for (const auto& decoder : method_names(decoders()))
    for (const std::int32_t shift : {0, 1})
      for (const Position prompt : {1, 5, 13}) {
        if (test::decoder_of(decoder, {}, 24)->revises()) continue;  // the reference expects that committed tokens stay
        MethodRun scenario{.cache = "dual", .decoder = decoder};
        scenario.prompt = prompt;
        if (prompt == 13) scenario.grid.origin = BlockOrigin::kAbsolute;  // the prompt shares the first block
        FakeBackend plain(masked_desc(0, shift));
        const MethodResult all = run(plain, scenario);
        std::int64_t before = 0;
        for (const std::int32_t settle : {1, 2, 3}) {
          FakeBackend settled(masked_desc(0, shift)), reference(masked_desc(0, shift));
          scenario.cache_config["settle"] = settle;
          const MethodResult ours = run(settled, scenario);
          const MethodResult theirs = run(reference, scenario, std::make_unique<SettledReference>(settle));
          EXPECT_EQ(ours.tokens, theirs.tokens) << decoder << " settle " << settle;
          EXPECT_EQ(ours.commit_pass, theirs.commit_pass);
          ASSERT_EQ(settled.plans.size(), reference.plans.size());
          for (std::size_t i = 0; i < settled.plans.size(); ++i) {
            EXPECT_EQ(settled.plans[i].rows, reference.plans[i].rows) << "pass " << i;
            EXPECT_EQ(settled.plans[i].scored, reference.plans[i].scored);
          }
          if (decoder == "low-confidence") {
            EXPECT_LT(ours.counters.rows_forwarded, all.counters.rows_forwarded);
            EXPECT_GT(ours.counters.rows_forwarded, before) << "less settles later";
            before = ours.counters.rows_forwarded;
          }
        }
      }
}

TEST(CachePolicies, WithoutSettleNothingChanges) {
  for (const CacheEntry& policy : caches()) {
    if (policy.option("settle") == nullptr) continue;
    const std::string cache = policy.info.name;
    const std::int32_t block = suits(policy, masked_desc()) ? 0 : 8;
    FakeBackend plain(masked_desc(block)), late(masked_desc(block));
    MethodRun scenario{.cache = cache, .decoder = "low-confidence"};
    scenario.grid.origin = BlockOrigin::kAbsolute;
    run(plain, scenario);
    scenario.cache_config["settle"] = 1000;
    run(late, scenario);
    ASSERT_EQ(plain.plans.size(), late.plans.size());
    for (std::size_t i = 0; i < plain.plans.size(); ++i) EXPECT_EQ(plain.plans[i].rows, late.plans[i].rows);
  }
}

// A window of several attention blocks: the finished ones are exact and need no pass.
TEST(CachePolicies, FinishedBlocksInsideTheWindowAreExact) {
  for (const std::int32_t block : {1, 4, 8})
    for (const auto& decoder : method_names(decoders())) {
      SCOPED_TRACE(decoder);
      MethodRun scenario{.window = "whole", .decoder = decoder};
      FakeBackend full(masked_desc(block)), cached(masked_desc(block)), settled(masked_desc(block));
      // Commits from left to right, so that blocks finish one after the other.
      for (FakeBackend* backend : {&full, &cached, &settled})
        backend->tamper = [](RowScore& score) {
          score.confidence = 1.0 / (2 + score.position);
          score.log_odds = -score.position;
        };
      const MethodResult uncached = run(full, scenario);
      scenario.cache = "block-causal";
      const MethodResult plain = run(cached, scenario);
      scenario.cache_config["settle"] = 1;
      const MethodResult ours = run(settled, scenario);
      EXPECT_EQ(ours.tokens, uncached.tokens) << "block " << block;
      EXPECT_EQ(ours.commit_pass, uncached.commit_pass);
      EXPECT_LE(ours.counters.rows_forwarded, plain.counters.rows_forwarded) << "block " << block;
      if (decoder == "low-confidence") {
        EXPECT_LT(ours.counters.rows_forwarded, plain.counters.rows_forwarded) << "block " << block;
      }
    }
}

TEST(CachePolicies, AutoregressionIsBlockCausalWithBlockOne) {
  ModelDesc desc = masked_desc(1, 1);
  desc.mask.reset();
  FakeBackend backend(desc);
  MethodRun scenario{.decoder = "low-confidence"};
  scenario.grid.block_length = 1;
  const MethodResult uncached = run(backend, scenario);
  backend.plans.clear();
  scenario.cache = "block-causal";
  const MethodResult cached = run(backend, scenario);
  EXPECT_EQ(uncached.tokens, cached.tokens);
  EXPECT_EQ(cached.counters.nfe, 24);
  EXPECT_EQ(backend.plans[0].rows.size(), 5u) << "the prompt";
  for (std::size_t i = 1; i < backend.plans.size(); ++i) EXPECT_EQ(backend.plans[i].rows.size(), 1u);
}

TEST(Denoiser, GuidanceMasksThePromptOfItsOwnSequence) {
  FakeBackend backend(masked_desc());
  MethodRun scenario;
  scenario.options.cfg_scale = 1.5f;
  const MethodResult result = run(backend, scenario);
  EXPECT_EQ(result.counters.nfe, 2 * result.counters.steps);
  EXPECT_EQ(backend.plans[0].rows[0].token, 1);
  EXPECT_EQ(backend.plans[1].rows[0].token, 99);
  EXPECT_EQ(backend.plans[1].scored, backend.plans[0].scored);
}

TEST(Denoiser, StopsAtTheFirstStopTokenWithNothingUndecidedBefore) {
  FakeBackend backend(masked_desc());
  backend.tamper = [](RowScore& score) { score.token = score.position == 9 || score.position == 3 ? 49 : 1; };
  MethodRun scenario{.decoder = "low-confidence"};
  scenario.options.exact_length = false;
  scenario.options.stop_ids = {49};
  const MethodResult stopped = run(backend, scenario);
  EXPECT_EQ(stopped.stop, 9);
  EXPECT_LT(stopped.counters.nfe, 24);
  EXPECT_EQ(stopped.tokens.back(), 99) << "later blocks are left alone";
  scenario.options.exact_length = true;
  const MethodResult full = run(backend, scenario);
  EXPECT_EQ(full.counters.nfe, 24);
  EXPECT_EQ(full.stop, 9);
}

TEST(Denoiser, ProgressRuleTakesTheBestWhenEverythingWouldRatherBeMask) {
  FakeBackend backend(masked_desc());
  backend.tamper = [](RowScore& score) { score.overruled = true; };
  const MethodResult result = run(backend, MethodRun{});
  EXPECT_EQ(result.counters.forced, 24);
  EXPECT_EQ(result.counters.nfe, 24);
}

TEST(Denoiser, LogitsThatAreNotNumbersAreAnError) {
  FakeBackend backend(masked_desc());
  backend.tamper = [](RowScore& score) {
    score.token = -1;
    score.log_odds = std::numeric_limits<double>::quiet_NaN();
  };
  MethodRun scenario;
  auto cache = *backend.make_cache(29);
  Denoiser denoiser(backend.desc(), test::canvas_of(scenario, backend.desc()), test::method_of(scenario),
                    scenario.options, *cache, nullptr);
  const auto step = denoiser.absorb(*backend.forward(denoiser.prepare()));
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().code, ErrorCode::kInvalidFile);
}

}  // namespace
}  // namespace dllm
