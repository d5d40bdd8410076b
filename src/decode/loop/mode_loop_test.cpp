#include "decode/loop/mode_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "decode/registry.h"
#include "decode/testing/fake_backend.h"
#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::make_decoder;

constexpr Position kPromptEnd = 5;

ModelDesc modes_desc() {
  ModelDesc desc = test::masked_desc();
  desc.modes = {DecodingMode::kAutoregressive, DecodingMode::kDiffusion, DecodingMode::kSelfSpeculation};
  return desc;
}

Canvas empty_canvas(Position length) {
  std::vector<TokenId> prompt;
  for (Position p = 0; p < kPromptEnd; ++p) prompt.push_back(p + 1);
  return Canvas(prompt, length, 99);
}

ModeLoopOptions speculate(Position least, Position most, double threshold = 0) {
  ModeLoopOptions options;
  options.exact_length = true;
  options.mode.mode = DecodingMode::kSelfSpeculation;
  options.mode.draft = {.draft_min = least, .draft_max = most, .draft_confidence = threshold};
  return options;
}

ModeLoopOptions plain() {
  ModeLoopOptions options;
  options.exact_length = true;
  return options;
}

struct ModeRun {
  std::vector<TokenId> tokens;
  DenoiseCounters counters;
  std::optional<Position> stop;
  std::vector<StepPlan> plans;
  bool reuses = true;  ///< no plan had a row in front of the last known token, but for the prompt's
  bool stands = true;  ///< the rows in front of each plan were read with the canvas's tokens
};

ModeRun run_loop(FakeBackend& backend, Position length, const ModeLoopOptions& options,
                 std::unique_ptr<Decoder> decoder = nullptr) {
  Canvas canvas = empty_canvas(length);
  auto cache = *backend.make_cache(canvas.size());
  backend.plans.clear();
  ModeLoop loop(backend.desc(), std::move(canvas), std::move(decoder), options, *cache);
  ModeRun run;
  Position known = 0;
  for (auto batch = loop.prepare(); !batch.empty(); batch = loop.prepare()) {
    run.reuses = run.reuses && batch[0].plan.rows.front().position >= known;
    for (Position p = 0, begin = batch[0].plan.rows.front().position; p < begin; ++p)
      run.stands = run.stands && cache->token_of(p) == loop.canvas().token(p);
    const auto scores = *backend.forward(batch);
    if (!loop.absorb(scores)) return run;
    if (options.mode.mode != DecodingMode::kDiffusion) known = loop.settled() - 1;
  }
  for (Position p = 0; p < loop.canvas().size(); ++p) run.tokens.push_back(loop.canvas().token(p));
  run.counters = loop.counters();
  run.stop = loop.stop_position();
  run.plans = backend.plans;
  return run;
}

/// Tokens below `kinds`: the fewer there are, the more drafts are right.
void limit_tokens(FakeBackend& backend, TokenId kinds) {
  backend.tamper = [kinds](RowScore& score) { score.token %= kinds; };
}

/// Autoregression without a cache: everything anew for every token.
std::vector<TokenId> naive(FakeBackend& backend, Position length) {
  std::vector<TokenId> tokens;
  for (Position p = 0; p < kPromptEnd; ++p) tokens.push_back(p + 1);
  while (static_cast<Position>(tokens.size()) < kPromptEnd + length) {
    const auto end = static_cast<Position>(tokens.size());
    auto cache = *backend.make_cache(end);
    SequenceStep step{cache.get(), {}, {}, std::nullopt};
    for (Position p = 0; p < end; ++p) step.plan.rows.push_back({p, tokens[static_cast<std::size_t>(p)]});
    step.plan.visible = {{0, end}};
    step.plan.causal_block = 1;
    step.plan.scored = {end - 1};
    tokens.push_back((*backend.forward({&step, 1}))[0].rows[0].token);
  }
  return tokens;
}

TEST(ModeLoop, EveryPassDrawsAsTheOptionsSay) {
  FakeBackend backend(modes_desc());
  ModeLoopOptions options = speculate(4, 4);
  options.sampling = {.temperature = 0.7, .top_k = 9, .top_p = 0.8, .min_p = 0.1};
  auto cache = *backend.make_cache(kPromptEnd + 12);
  ModeLoop loop(backend.desc(), empty_canvas(12), nullptr, options, *cache);
  int drafts = 0, others = 0;
  for (auto batch = loop.prepare(); !batch.empty(); batch = loop.prepare()) {
    const ScoreRequest& request = batch[0].request;
    ++(batch[0].plan.region == Region::kCanvas ? drafts : others);
    EXPECT_EQ(request.temperature, 0.7);
    EXPECT_EQ(request.top_k, 9);
    EXPECT_EQ(request.top_p, 0.8);
    EXPECT_EQ(request.min_p, 0.1);
    ASSERT_TRUE(loop.absorb(*backend.forward(batch)));
  }
  EXPECT_GT(drafts, 0);
  EXPECT_GT(others, 1);
}

TEST(ModeLoop, ArForwardsEachTokenOnce) {
  FakeBackend backend(modes_desc());
  const auto expected = naive(backend, 20);
  const ModeRun run = run_loop(backend, 20, plain());
  EXPECT_EQ(run.tokens, expected);
  EXPECT_EQ(run.counters.nfe, 20);
  EXPECT_EQ(run.counters.rows_forwarded, kPromptEnd + 19);
  EXPECT_EQ(run.counters.rounds, 0);
}

TEST(ModeLoop, SelfSpeculationAppendsWhatArDoes) {
  std::int32_t rounds = 0, tokens = 0;
  for (const TokenId kinds : {1, 2, 3, 50}) {
    FakeBackend backend(modes_desc());
    limit_tokens(backend, kinds);
    for (const Position length : {1, 2, 9, 40}) {
      const auto expected = naive(backend, length);
      for (const auto& [least, most] : {std::pair<Position, Position>{2, 2}, {2, 32}, {3, 5}, {8, 32}, {64, 64}})
        for (const double threshold : {0.0, 0.7}) {
          SCOPED_TRACE(testing::Message() << kinds << ' ' << length << ' ' << least << ' ' << most << ' ' << threshold);
          const ModeRun run = run_loop(backend, length, speculate(least, most, threshold));
          EXPECT_EQ(run.tokens, expected);
          EXPECT_TRUE(run.reuses);
          EXPECT_EQ(run.plans.size(), static_cast<std::size_t>(run.counters.nfe));
          if (threshold == 0) {
            EXPECT_LE(run.counters.nfe, 2 * length);
          }
          rounds += run.counters.rounds, tokens += run.counters.round_tokens;
        }
    }
  }
  EXPECT_GT(2 * tokens, 3 * rounds) << "nothing was accepted: the property shows little";
}

TEST(ModeLoop, SelfSpeculationStopsWhereArDoes) {
  int stopped = 0;
  for (TokenId stop = 0; stop < 7; ++stop) {
    FakeBackend backend(modes_desc());
    limit_tokens(backend, 7);
    ModeLoopOptions one = plain(), many = speculate(2, 16);
    one.exact_length = many.exact_length = false;
    one.stop_ids = many.stop_ids = {stop};
    const ModeRun ar = run_loop(backend, 30, one), drafted = run_loop(backend, 30, many);
    EXPECT_EQ(drafted.tokens, ar.tokens) << "positions after the stop token stay masked too";
    EXPECT_EQ(drafted.stop, ar.stop);
    stopped += ar.stop && *ar.stop < kPromptEnd + 29 ? 1 : 0;
  }
  EXPECT_GT(stopped, 3);
}

TEST(ModeLoop, ReplaysRoundsWhateverIsPredicted) {
  ModelDesc desc = modes_desc();
  desc.stop_ids = {6};
  for (const TokenId kinds : {1, 7, 50}) {  // all drafts are right; some; none
    FakeBackend backend(desc);
    limit_tokens(backend, kinds);
    ModeLoopOptions options = speculate(8, 32);
    options.exact_length = false;
    options.stop_ids = desc.stop_ids;
    CommitSchedule schedule{{0, 2, 2, 2}, 13};
    schedule.pass_of.resize(12, 4);  // a whole draft, so that the next one is twice as wide
    schedule.pass_of.resize(14, 6);
    schedule.pass_of.resize(40, -1);
    options.replay = schedule;
    const ModeRun run = run_loop(backend, 40, options);
    EXPECT_EQ(run.counters.rounds, 3);
    EXPECT_EQ(run.counters.round_tokens, 13);
    EXPECT_EQ(run.counters.rows_forwarded, kPromptEnd + 2 * (8 + 8 + 16));
    ASSERT_EQ(run.stop, kPromptEnd + 13);
    EXPECT_EQ(run.tokens[kPromptEnd + 13], 6);
    for (Position p = kPromptEnd; p < kPromptEnd + 13; ++p) EXPECT_NE(run.tokens[static_cast<std::size_t>(p)], 6);
  }
}

TEST(ModeLoop, DraftsSeeTheirBlockAndVerificationIsCausal) {
  FakeBackend backend(modes_desc());
  limit_tokens(backend, 1);  // every draft is right
  const ModeRun run = run_loop(backend, 41, speculate(8, 32));
  // The prompt; rounds of 8, 16 and, as 40 tokens are missing after the first, the 16 that are left.
  ASSERT_EQ(run.plans.size(), 7u);
  EXPECT_EQ(run.counters.rounds, 3);
  EXPECT_EQ(run.counters.round_tokens, 40);
  const Position begins[] = {5, 13, 29}, widths[] = {8, 16, 16};
  for (std::size_t round = 0; round < 3; ++round) {
    const StepPlan &draft = run.plans[1 + 2 * round], &verification = run.plans[2 + 2 * round];
    for (const StepPlan* plan : {&draft, &verification}) {
      EXPECT_EQ(plan->rows.front().position, begins[round]);
      EXPECT_EQ(plan->rows.size(), static_cast<std::size_t>(widths[round]));
      EXPECT_EQ(plan->visible, (std::vector<PositionRange>{{0, begins[round] + widths[round]}}));
    }
    EXPECT_EQ(draft.causal_block, 0);
    EXPECT_EQ(draft.region, Region::kCanvas);
    EXPECT_EQ(draft.rows[1].token, 99);
    EXPECT_EQ(draft.scored.size(), draft.rows.size() - 1) << "the first token is known";
    EXPECT_EQ(verification.causal_block, 1);
    EXPECT_EQ(verification.region, Region::kContext);
    EXPECT_EQ(verification.scored.size(), verification.rows.size());
    EXPECT_NE(verification.rows[1].token, 99);
  }
}

ModelDesc introspective_desc() {
  ModelDesc desc = test::masked_desc(/*causal_block=*/1, /*shift=*/1);
  desc.introspective = true;
  desc.modes = {DecodingMode::kAutoregressive, DecodingMode::kSelfSpeculation};
  return desc;
}

TEST(ModeLoop, ThePassThatVerifiesMakesTheNextDraft) {
  FakeBackend backend(introspective_desc());
  const auto token_at = [](Position p) { return static_cast<TokenId>((p - 1) % 7); };
  backend.tamper = [](RowScore& score) { score.token = score.position % 7; };  // every draft is right
  const ModeRun run = run_loop(backend, 14, speculate(4, 4));
  // The prompt; a round without a draft, and three of three drafts each, of which the last is without masks.
  ASSERT_EQ(run.plans.size(), 5u);
  EXPECT_EQ(run.counters.rounds, 4);
  EXPECT_EQ(run.counters.round_tokens, 13);
  const Position begins[] = {5, 6, 10, 14}, known[] = {1, 4, 4, 4}, masks[] = {3, 3, 3, 0};
  for (std::size_t round = 0; round < 4; ++round) {
    const StepPlan& plan = run.plans[1 + round];
    EXPECT_EQ(plan.causal_block, 1);
    EXPECT_EQ(plan.scored.size(), plan.rows.size());
    ASSERT_EQ(plan.rows.size(), static_cast<std::size_t>(known[round] + masks[round]));
    for (Position i = 0; i < known[round] + masks[round]; ++i) {
      const Position p = begins[round] + i;
      EXPECT_EQ(plan.rows[static_cast<std::size_t>(i)], (PlanRow{p, i < known[round] ? token_at(p) : 99})) << p;
    }
  }
}

TEST(ModeLoop, DraftsOfTheVerifyingPassChangeNoToken) {
  for (const TokenId kinds : {1, 2, 3, 50}) {
    FakeBackend backend(introspective_desc());
    limit_tokens(backend, kinds);
    for (const Position length : {1, 2, 9, 40})
      for (const auto& [least, most] : {std::pair<Position, Position>{2, 2}, {4, 4}, {2, 16}}) {
        const auto expected = naive(backend, length);
        const ModeRun run = run_loop(backend, length, speculate(least, most));
        EXPECT_EQ(run.tokens, expected) << kinds << ' ' << length << ' ' << least << ' ' << most;
        EXPECT_TRUE(run.reuses && run.stands);
        EXPECT_LE(run.counters.nfe, length);
      }
  }
}

TEST(ModeLoop, DiffusionFillsBlocksBehindAKnownToken) {
  FakeBackend backend(modes_desc());
  ModeLoopOptions options = plain();
  options.mode.mode = DecodingMode::kDiffusion;
  options.block_length = 6;
  const ModeRun run = run_loop(backend, 15, options, *make_decoder({"native", {}}, {.block_length = 6, .length = 15}));
  EXPECT_EQ(std::count(run.tokens.begin(), run.tokens.end(), 99), 0);
  std::vector<Position> causal;
  for (std::size_t i = 0; i < run.plans.size(); ++i) {
    const StepPlan& plan = run.plans[i];
    if (plan.causal_block == 0) {
      EXPECT_EQ((plan.rows.front().position - kPromptEnd) % 6, 0);
      EXPECT_EQ(plan.visible[0].end, plan.rows.back().position + 1);
      EXPECT_NE(plan.rows.front().token, 99) << "predicted by the causal pass";
    } else {
      causal.push_back(plan.rows.front().position);
      EXPECT_EQ(plan.scored, (std::vector<std::int32_t>{static_cast<std::int32_t>(plan.rows.size()) - 1}));
    }
  }
  EXPECT_EQ(causal, (std::vector<Position>{0, 5, 11})) << "nothing follows the last block";
}

TEST(ModeLoop, EveryDecoderThatOnlyCommitsFillsTheAnswer) {
  const ModelDesc desc = modes_desc();
  const MethodContext grid{.block_length = 8, .length = 24};
  for (const std::string& name : test::names_for(decoders(), desc)) {
    SCOPED_TRACE(name);
    auto decoder = *make_decoder({name, {}}, grid);
    if (decoder->revises()) continue;
    FakeBackend backend(desc);
    backend.tops = true;
    ModeLoopOptions options = plain();
    options.mode.mode = DecodingMode::kDiffusion;
    options.block_length = 8;
    const ModeRun run = run_loop(backend, 24, options, std::move(decoder));
    EXPECT_EQ(run.tokens.size(), 29u);
    EXPECT_EQ(std::count(run.tokens.begin(), run.tokens.end(), 99), 0);
  }
}

TEST(ModeLoop, PredictionsThatAreNotNumbersAreErrors) {
  for (const bool speculates : {false, true}) {
    FakeBackend backend(modes_desc());
    int calls = 0;
    backend.tamper = [&calls](RowScore& score) { score.token = ++calls > 3 ? -1 : score.token; };
    const ModeRun run = run_loop(backend, 12, speculates ? speculate(4, 4) : plain());
    EXPECT_TRUE(run.tokens.empty());
  }
}

std::unique_ptr<Decoder> checking_decoder(double cost) {
  return test::decoder_of("s2d2", {{"threshold", 2.0}, {"check_cost", cost}, {"checked_tokens", std::int64_t{6}}});
}

/// With every draft checked, the answer is autoregression's; only a last mask that is alone is decided in place.
TEST(ModeLoopChecks, AnswerLikeAutoregression) {
  for (const TokenId kinds : {2, 3, 50}) {
    FakeBackend backend(modes_desc());
    limit_tokens(backend, kinds);
    ModeLoopOptions options = plain();
    options.mode.mode = DecodingMode::kDiffusion;
    options.block_length = 9;
    const ModeRun run = run_loop(backend, 41, options, checking_decoder(0));
    ASSERT_EQ(run.tokens.size(), 46u);
    const std::vector<TokenId> expected = naive(backend, 40);
    EXPECT_EQ(std::vector<TokenId>(run.tokens.begin(), run.tokens.end() - 1), expected);
    EXPECT_GT(run.counters.rounds, 0);
    EXPECT_LE(run.counters.nfe, 1 + 2 * run.counters.rounds + 2) << "a draft and a check, and no pass besides";
    for (const StepPlan& plan : run.plans)
      if (plan.causal_block == 1) {
        EXPECT_EQ(plan.region, Region::kContext);
      }
  }
}

/// Tokens right of the drafts stay, and their block goes on.
TEST(ModeLoopChecks, KeepTheBlockWhereItHasTokensFurtherOn) {
  FakeBackend backend(modes_desc());
  ModeLoopOptions options = plain();
  options.mode.mode = DecodingMode::kDiffusion;
  options.block_length = 12;
  for (const double cost : {0.1, 0.3, 0.6, 1.0}) {
    const ModeRun run =
        run_loop(backend, 50, options, test::decoder_of("s2d2", {{"threshold", 0.8}, {"check_cost", cost}}));
    ASSERT_EQ(run.tokens.size(), 55u);
    EXPECT_TRUE(run.stands) << "rows of a refused draft were kept, at cost " << cost;
    EXPECT_EQ(std::ranges::count(run.tokens, 99), 0);
    EXPECT_LT(run.counters.nfe, 80);
  }
}

}  // namespace
}  // namespace dllm
