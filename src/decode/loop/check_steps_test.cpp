// Passes that read a decoder's drafts: each is predicted as by the model with blocks of one position.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <memory>
#include <numeric>

#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::masked_desc;
using test::MethodRun;

/// Drafts up to four leading masks after every pass, and commits as many of them as the pass's number says. It notes
/// what it was told.
class Checking : public Decoder {
 public:
  struct Check {
    std::vector<Edit> drafts;
    std::vector<Candidate> told;
    std::vector<float> queried;
    std::vector<TokenId> tokens;  ///< of the canvas
    std::vector<bool> masked;
  };
  explicit Checking(std::vector<Check>& checks) : checks_(checks) {}

  bool keeps_schedule() const override { return true; }
  std::vector<Edit> drafts(const DecodeContext& context) override {
    if (drafts_.empty() || drafts_.front().position != context.canvas.first_masked(context.window.begin)) return {};
    Check& check = checks_.emplace_back();
    check.drafts = drafts_;
    for (Position p = 0; p < context.canvas.size(); ++p) {
      check.tokens.push_back(context.canvas.token(p));
      check.masked.push_back(context.canvas.masked(p));
    }
    return drafts_;
  }
  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    drafts_.clear();
    const Position first = context.canvas.first_masked(context.window.begin);
    std::vector<Edit> edits;
    for (const Candidate& candidate : candidates) {
      const auto place = static_cast<std::size_t>(candidate.position - first);
      if (place == drafts_.size() && drafts_.size() < 4) drafts_.push_back(commit(candidate));
      if (context.window_step == 0 && place >= 4 && candidate.position == context.window.end - 2)
        edits.push_back(commit(candidate));
    }
    return edits;
  }
  std::vector<Edit> checked(const DecodeContext&, std::span<const Candidate> candidates) override {
    Check& check = checks_.back();
    check.told.assign(candidates.begin(), candidates.end());
    for (const Candidate& candidate : candidates)
      if (!candidate.queried.empty()) check.queried.push_back(candidate.queried[0]);
    drafts_.clear();
    std::vector<Edit> edits;
    for (std::size_t i = 0; i < std::min(candidates.size(), 1 + checks_.size() % 3); ++i)
      edits.push_back(commit(candidates[i]));
    return edits;
  }

 private:
  std::vector<Check>& checks_;
  std::vector<Edit> drafts_;
};

/// What a request of its own predicts at a position if the drafts before it are tokens, and blocks have one position.
Scores apart(FakeBackend& backend, const KvCache& cache, const Checking::Check& check, Position at, bool shift) {
  const auto size = static_cast<Position>(check.tokens.size());
  const auto copy = *backend.make_cache(size);
  std::vector<Position> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  FakeBackend::copy_rows(cache, *copy, all);
  const Position first = check.drafts.front().position;
  const Position begin = std::min(first / 8 * 8, shift ? first - 1 : first);
  SequenceStep step{copy.get(), {}, {}, {}};
  step.plan.causal_block = 1;
  for (Position p = begin; p < at; ++p) {
    const auto draft = static_cast<std::size_t>(p - first);
    step.plan.rows.push_back({p, p < first ? check.tokens[static_cast<std::size_t>(p)] : check.drafts[draft].token});
  }
  if (!shift) step.plan.rows.push_back({at, 99});
  step.plan.visible = {{0, shift ? at : at + 1}};
  step.plan.scored = {static_cast<std::int32_t>(step.plan.rows.size()) - 1};
  const auto draft = static_cast<std::size_t>(at - first);
  if (draft < check.drafts.size()) step.request.queries = {{0, check.drafts[draft].token}};
  return (*backend.forward({&step, 1}))[0];
}

void check_loop(std::int32_t shift, Position prompt) {
  const ModelDesc desc = masked_desc(8, shift);
  FakeBackend backend(desc), other(desc);
  MethodRun run{.cache = "block-causal", .prompt = prompt};
  run.grid.origin = BlockOrigin::kAbsolute;
  Canvas canvas = test::canvas_of(run, desc);
  const Position size = canvas.size();
  const auto cache = *backend.make_cache(size);
  std::vector<std::unique_ptr<KvCache>> branches;
  DenoiseOptions options = run.options;
  for (std::int32_t i = 0; i < check_branches(desc, 4); ++i) {
    branches.push_back(*backend.make_cache(size));
    options.branches.push_back(branches.back().get());
  }
  std::vector<Checking::Check> checks;
  Method method = test::method_of(run);
  method.decoder = std::make_unique<Checking>(checks);
  Denoiser denoiser(desc, std::move(canvas), std::move(method), options, *cache, nullptr);
  std::size_t drafted = 0, bonus = 0;
  for (auto batch = denoiser.prepare(); !batch.empty(); batch = denoiser.prepare()) {
    const std::size_t before = checks.size();
    const std::uint32_t epoch = cache->epoch();
    const bool reads = batch[0].cache != cache.get();
    const auto scores = *backend.forward(batch);
    ASSERT_TRUE(denoiser.absorb(scores));
    ASSERT_LT(denoiser.counters().nfe, 200);
    if (!reads) continue;
    ASSERT_EQ(checks.size(), before);
    EXPECT_EQ(cache->epoch(), epoch) << "the sequence's own rows stay";
    const Checking::Check& check = checks.back();
    ASSERT_GE(check.told.size(), check.drafts.size());
    EXPECT_EQ(check.told.front().position / 8, check.told.back().position / 8) << "nothing outside the window";
    drafted += check.drafts.size();
    bonus += check.told.size() - check.drafts.size();
    EXPECT_EQ(check.queried.size(), check.drafts.size());
    for (std::size_t i = 0; i < check.told.size(); ++i) {
      const Position at = check.drafts[0].position + static_cast<Position>(i);
      const Scores scored = apart(other, *cache, check, at, shift > 0);
      const RowScore& expected = scored.rows[0];
      if (i < check.drafts.size()) {
        EXPECT_EQ(check.queried[i], scored.queried[0]) << "the logit of its own draft";
      }
      EXPECT_EQ(check.told[i].position, at);
      EXPECT_TRUE(check.masked[static_cast<std::size_t>(at)]);
      EXPECT_EQ(check.told[i].token, expected.token) << i;
      EXPECT_EQ(check.told[i].confidence, expected.confidence) << i;
    }
  }
  EXPECT_EQ(denoiser.canvas().masked_count(), 0);
  EXPECT_GT(drafted, 20u);
  EXPECT_EQ(bonus > 0, shift > 0) << "a row more predicts the next position, where rows predict next ones";
  EXPECT_EQ(denoiser.counters().rounds, static_cast<std::int32_t>(checks.size()));
}

TEST(CheckSteps, PredictEachDraftFromWhatIsBeforeIt) {
  for (const std::int32_t shift : {0, 1})
    for (const Position prompt : {1, 5, 8}) {
      SCOPED_TRACE(fmt::format("shift {} prompt {}", shift, prompt));
      check_loop(shift, prompt);
    }
}

TEST(CheckSteps, OfOneDraftAtABlocksStartIsOneRow) {
  const ModelDesc desc = masked_desc(8);
  FakeBackend backend(desc);
  const Canvas canvas({1, 2, 3, 4, 5, 6, 7, 8}, 8, 99);
  const auto cache = *backend.make_cache(16), first = *backend.make_cache(16), second = *backend.make_cache(16);
  KvCache* const branches[] = {first.get(), second.get()};
  const std::vector<Edit> drafts{{8, 3}};
  const auto steps = check_steps(desc, canvas, drafts, 16, *cache, branches);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].cache, second.get());
  EXPECT_EQ(steps[0].plan.rows, (std::vector<PlanRow>{{8, 99}}));
  EXPECT_EQ(steps[0].predicted, std::vector<Position>{8});
}

}  // namespace
}  // namespace dllm
