#include "ranks/command.h"

#include <gtest/gtest.h>

#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "backend/kv_cache.h"
#include "base/testing/fuzz_replay.h"
#include "ranks/testing/fuzz_entry.h"

namespace dllm {
namespace {

constexpr std::int64_t kVocab = 100;

/// A batch with every member set.
RunSteps full_batch() {
  RunSteps run;
  run.caches = {3, 8};
  run.steps.resize(2);
  StepPlan& plan = run.steps[0].plan;
  plan.rows = {{2, 5}, {3, 99}, {9, 0}};
  plan.visible = {{0, 4}, {9, 10}};
  plan.causal_block = 4;
  plan.scored = {0, 2, 3};
  plan.mixtures = {{1, {{4, 0.5f}, {7, -1.f}}}};
  plan.region = Region::kCanvas;
  plan.shadows = {{{3, 6}, {{0, 2}}}};
  run.steps[1].plan = plan;
  run.steps[0].guidance = Guidance{1, 1.5f};
  ScoreRequest& request = run.steps[0].request;
  request.temperature = 0.7, request.top_k = 3, request.top_p = 0.9, request.min_p = 0.1;
  request.distribution = ScoreDistribution::kSampled;
  request.rng = {77, 2};
  request.step = 5, request.draw_ahead = 1, request.steps_from = 4;
  request.rules = {{3, true, false}};
  request.adjustments = {1.5f, 0.25f, 0.5f, {{4, true, 2, -1.f}, {9, false, 0, 2.f}}, {-1, 4, 5}};
  request.queries = {{0, 4}, {2, 9}};
  request.top_tokens = 6;
  request.logits = true;
  return run;
}

TEST(RankCommands, BatchesSurviveTheirWay) {
  const std::vector<std::byte> message = encode_command(full_batch());
  const auto command = decode_command(message, kVocab);
  ASSERT_TRUE(command) << command.error().message();
  const RunSteps& run = std::get<RunSteps>(*command);
  EXPECT_EQ(encode_command(run), message) << "every member is in the message, so equal messages are equal batches";
  EXPECT_EQ(run.caches, (std::vector<std::uint32_t>{3, 8}));
  EXPECT_EQ(run.steps[0].plan.rows, full_batch().steps[0].plan.rows);
  EXPECT_EQ(run.steps[0].plan.shadows[0].visible.size(), 1U);
  EXPECT_EQ(run.steps[0].request.steps_from, 4);
  EXPECT_EQ(run.steps[0].request.adjustments.tokens[1].bias, 2.f);
  EXPECT_EQ(run.steps[0].guidance->scale, 1.5f);
  EXPECT_FALSE(run.steps[1].guidance);
}

TEST(RankCommands, OthersSurviveToo) {
  for (const Command& command :
       {Command(MakeCache{4, 512}), Command(DropCache{9}), Command(CopyRows{1, 2, {3, 7}, 11}),
        Command(CopyPositions{2, 5, {0, 3, 4, 90}}), Command(FollowCache{3, 1, {{2, 99}, {5, 0}}}),
        Command(AdoptRows{6, 7}), Command(Leave{})}) {
    const auto message = encode_command(command);
    const auto back = decode_command(message, kVocab);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->index(), command.index());
    EXPECT_EQ(encode_command(*back), message);
  }
}

TEST(RankCommands, PendingRowsAscendAndHaveTokens) {
  for (const std::vector<PlanRow>& rows : {std::vector<PlanRow>{{5, 1}, {5, 2}}, {{-1, 1}}, {{4, 100}}, {{4, -1}}})
    EXPECT_FALSE(decode_command(encode_command(FollowCache{3, 1, rows}), kVocab));
}

TEST(RankCommands, EveryShorterMessageIsAnError) {
  const std::vector<std::byte> message = encode_command(full_batch());
  for (std::size_t size = 0; size < message.size(); ++size)
    EXPECT_FALSE(decode_command(std::span(message).first(size), kVocab)) << size;
  std::vector<std::byte> longer = message;
  longer.push_back({});
  EXPECT_FALSE(decode_command(longer, kVocab));
}

TEST(RankCommands, BatchesThatTheLoopDoesNotMakeAreErrors) {
  const auto refused = [](const auto& change) {
    RunSteps run = full_batch();
    change(run);
    return !decode_command(encode_command(run), kVocab).has_value();
  };
  EXPECT_FALSE(refused([](RunSteps&) {}));
  EXPECT_TRUE(refused([](RunSteps& run) { run.caches[1] = 3; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.rows[1].token = 100; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.rows[1].token = -1; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.rows[1].position = 2; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.rows[0].position = -2; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.rows.clear(); }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.visible[0].end = 10; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.visible[1].end = 9; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.causal_block = -1; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.scored[2] = 4; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.scored[1] = 0; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.mixtures[0].row = 3; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.mixtures[0].tokens[0].token = 100; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.shadows[0].visible.clear(); }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].plan.hidden = {1.f}; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].guidance->unconditional = 2; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].guidance->unconditional = 0; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[1].plan.scored = {0}; })) << "guided by other rows";
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].request.rules[0].token = 100; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].request.queries[1].scored = 3; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].request.queries[1].scored = -1; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].request.adjustments.tokens[1].token = 4; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].request.adjustments.shown.pop_back(); }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].request.top_tokens = 101; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].request.temperature = -1; }));
  EXPECT_TRUE(refused([](RunSteps& run) { run.steps[0].request.top_p = 1.5; }));
  EXPECT_FALSE(decode_command(encode_command(MakeCache{1, -1}), kVocab));
  EXPECT_FALSE(decode_command(encode_command(CopyRows{1, 2, {5, 4}, 0}), kVocab));
  for (const std::vector<Position>& positions : {std::vector<Position>{-1}, {3, 3}, {4, 2}})
    EXPECT_FALSE(decode_command(encode_command(CopyPositions{1, 2, positions}), kVocab));
}

/// Masks of a model without a mask token have no number, in blocks that a drafter fills.
TEST(RankCommands, StepsOfADrafterHaveItsForm) {
  SequenceStep draft;
  draft.plan.region = Region::kDraft;
  draft.plan.rows = {{4, 9}, {5, -1}, {6, -1}};
  draft.plan.visible = {{0, 7}};
  draft.plan.scored = {1, 2};
  RunSteps run{{3}, {draft}};
  EXPECT_TRUE(decode_command(encode_command(run), kVocab));
  run.steps[0].plan.region = Region::kCanvas;
  EXPECT_FALSE(decode_command(encode_command(run), kVocab));
  run.steps[0].plan.region = Region::kDraft;
  run.steps[0].plan.rows[1].token = -2;
  EXPECT_FALSE(decode_command(encode_command(run), kVocab));

  EXPECT_TRUE(fits_drafter(draft, 3));
  EXPECT_FALSE(fits_drafter(draft, 2)) << "wider than a block";
  EXPECT_FALSE(fits_drafter(draft, 0)) << "there is no drafter";
  const auto fits = [&draft](const auto& change) {
    SequenceStep other = draft;
    change(other);
    return fits_drafter(other, 3);
  };
  EXPECT_FALSE(fits([](SequenceStep& step) { step.plan.rows[2].position = 7; })) << "a gap";
  EXPECT_FALSE(fits([](SequenceStep& step) { step.plan.scored = {0}; })) << "the known token";
  EXPECT_FALSE(fits([](SequenceStep& step) { step.plan.mixtures = {{1, {{4, 0.5f}}}}; }));
  EXPECT_FALSE(fits([](SequenceStep& step) { step.plan.shadows = {{{5, 1}, {{0, 2}}}}; }));
  EXPECT_FALSE(fits([](SequenceStep& step) { step.guidance = Guidance{1, 1.f}; }));
  EXPECT_TRUE(fits([](SequenceStep& step) { step.plan.region = Region::kContext, step.plan.rows[2].position = 9; }));
}

class RecordedCache final : public KvCache {
 public:
  explicit RecordedCache(Position capacity) : KvCache(capacity) {}
  using KvCache::record;
};

TEST(RankCommands, StepsMustFitTheirCaches) {
  RecordedCache cache(10);
  const std::vector<PlanRow> cached = {{0, 1}, {1, 1}};
  cache.record(cached);
  StepPlan plan;
  plan.rows = {{2, 1}, {3, 1}};
  plan.visible = {{0, 4}};
  EXPECT_TRUE(fits_cache(plan, cache));
  plan.visible = {{0, 5}};
  EXPECT_FALSE(fits_cache(plan, cache)) << "position 4 is empty";
  plan.visible = {{0, 1}, {2, 11}};
  EXPECT_FALSE(fits_cache(plan, cache));
  plan.visible = {{0, 4}};
  plan.shadows = {{{3, 1}, {{1, 3}}}};
  EXPECT_TRUE(fits_cache(plan, cache));
  plan.shadows[0].visible = {{3, 5}};
  EXPECT_FALSE(fits_cache(plan, cache));
  plan.shadows = {{{10, 1}, {{1, 3}}}};
  EXPECT_FALSE(fits_cache(plan, cache));
  plan.shadows.clear();
  plan.rows[1].position = 10;
  plan.visible = {{0, 3}};
  EXPECT_FALSE(fits_cache(plan, cache));
}

TEST(RankCommands, ChangedBytesNeverCrash) {
  const std::vector<std::byte> message = encode_command(full_batch());
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> changed = message;
    for (int n = 0; n < 3; ++n) changed[random() % changed.size()] = static_cast<std::byte>(random());
    if (const auto command = decode_command(changed, kVocab)) {
      EXPECT_TRUE(decode_command(encode_command(*command), kVocab)) << i;
    }
  }
}

TEST(RankCommands, FuzzCorpus) {
  test::replay_corpus("rank_command", 300,
                      [](std::string_view text) { fuzz_rank_command(std::as_bytes(std::span(text))); });
}

}  // namespace
}  // namespace dllm
