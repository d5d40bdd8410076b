// Decoders with a state between steps or with edits of committed tokens: credit, hierarchical-remask, draft-edit.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "decode/loop/denoiser.h"
#include "decode/testing/fake_backend.h"
#include "decode/testing/make_method.h"
#include "decode/testing/random_scores.h"

namespace dllm {
namespace {

using test::decode_rows;
using test::LogitRow;
using test::make_cache_policy;
using test::make_window;
using test::number;
using test::prediction;
using test::random_row;
using test::random_rows;
using test::reduce;

constexpr TokenId kMask = 11;
constexpr std::size_t kVocab = 12;

std::unique_ptr<Decoder> make(const std::string& name, const OptionMap& options, Position length = 0,
                              bool compat = false) {
  return test::decoder_of(name, options, length, compat);
}

/// The effect of edits, independent of their order: position -> (kind, token).
std::map<Position, std::pair<EditKind, TokenId>> effect(const std::vector<Edit>& edits) {
  std::map<Position, std::pair<EditKind, TokenId>> result;
  for (const Edit& edit : edits)
    EXPECT_TRUE(result.emplace(edit.position, std::make_pair(edit.kind, edit.token)).second)
        << "two edits at one place";
  return result;
}

/// CreditDecoding on the full matrix, as in the paper.
class DenseCredit {
 public:
  DenseCredit(Position length, const OptionMap& config)
      : config_(config), credit_(static_cast<std::size_t>(length), std::vector<double>(kVocab, 0.0)) {}

  std::vector<double> fused_logits(Position p, const LogitRow& z) {
    std::vector<double>& c = credit_[static_cast<std::size_t>(p)];
    for (double& value : c) value *= number(config_, "credit_beta");
    const Candidate raw = reduce(p, z, kMask);
    if (raw.eligible)
      c[static_cast<std::size_t>(raw.token)] += std::pow(raw.confidence, number(config_, "credit_gamma"));
    std::vector<double> fused;
    for (std::size_t t = 0; t < kVocab; ++t)
      fused.push_back(static_cast<double>(z[t]) + number(config_, "credit_alpha") * std::log(1 + c[t]));
    return fused;
  }

  std::map<Position, std::pair<EditKind, TokenId>> step(const Canvas& canvas, const std::vector<LogitRow>& rows) {
    std::map<Position, std::pair<TokenId, double>> eligible;
    double best = -1;
    for (Position p = 0; p < canvas.size(); ++p) {
      if (!canvas.masked(p)) continue;
      const std::vector<double> z = fused_logits(p, rows[static_cast<std::size_t>(p)]);
      const auto top = static_cast<std::size_t>(std::max_element(z.begin(), z.end()) - z.begin());
      if (top == static_cast<std::size_t>(kMask)) continue;
      double total = 0;
      for (double logit : z) total += std::exp(logit - z[top]);
      eligible[p] = {static_cast<TokenId>(top), 1 / total};
      best = std::max(best, 1 / total);
    }
    std::map<Position, std::pair<EditKind, TokenId>> result;
    for (const auto& [p, prediction] : eligible)
      if (prediction.second >= std::min(number(config_, "threshold"), best - 1e-5))
        result[p] = {EditKind::kCommit, prediction.first};
    return result;
  }

 private:
  OptionMap config_;
  std::vector<std::vector<double>> credit_;
};

TEST(Credit, ReferenceVector) {
  const double expected[] = {.758412, .797594, .819295};
  // A more certain second row is committed in the passes before the tested one, so that the first accumulates credit.
  const std::vector<LogitRow> rows = {{2, 1, 0, -100}, {9, 0, 0, -100}};
  for (int n = 0; n < 3; ++n) {
    auto decoder = make("credit", {{"threshold", 2}});
    Canvas canvas({}, 2, 3);
    for (int i = 0; i < n; ++i) EXPECT_EQ(decode_rows(*decoder, canvas, rows, i, 2).at(0).position, 1);
    canvas.apply({1, 0, EditKind::kCommit, 1});
    const auto edits = decode_rows(*decoder, canvas, rows, n, 2);
    ASSERT_EQ(edits.size(), 1u);
    EXPECT_EQ(edits[0].position, 0);
    EXPECT_NEAR(edits[0].confidence, expected[n], 1e-6);
  }
}

TEST(Credit, SparseEqualsDense) {
  int overtaken = 0, from_mask = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto n = static_cast<Position>(1 + random() % 8);
    const OptionMap config = {{"threshold", seed % 3 == 0 ? .6 : .97},
                              {"credit_alpha", seed % 2 == 0 ? .7 : 2.0},
                              {"credit_beta", seed % 5 == 0 ? 1.0 : .8},
                              {"credit_gamma", .2}};
    auto decoder = make("credit", config);
    DenseCredit dense(n, config);
    Canvas canvas({}, n, kMask);
    // Slowly drifting logits: arg-maxes persist, change and return.
    std::vector<LogitRow> rows = random_rows(random, static_cast<std::size_t>(n), kVocab);
    for (std::int32_t step = 0; canvas.masked_count() > 0 && step < 30; ++step) {
      const auto actual = effect(decode_rows(*decoder, canvas, rows, step, n));
      ASSERT_EQ(actual, dense.step(canvas, rows)) << "seed " << seed << " step " << step;
      for (const auto& [p, edit] : actual) {
        const Candidate raw = reduce(p, rows[static_cast<std::size_t>(p)], kMask);
        overtaken += raw.token != edit.second;
        from_mask += !raw.eligible;
        canvas.apply({p, edit.second, EditKind::kCommit, 0});
      }
      for (LogitRow& row : rows)
        for (float& logit : row) logit += std::normal_distribution<float>(0, .3f)(random);
    }
  }
  EXPECT_GT(overtaken, 5) << "the cases never let a credit decide";
  EXPECT_GT(from_mask, 5) << "the cases never lift a token above the mask";
}

TEST(Credit, WithoutWeightItIsTheThresholdRule) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 random(seed);
    auto credit = make("credit", {{"threshold", .7}, {"credit_alpha", 0}}),
         threshold = make("threshold", {{"threshold", .7}});
    Canvas canvas({}, 9, kMask);
    for (std::int32_t step = 0; canvas.masked_count() > 0 && step < 50; ++step) {
      const auto rows = random_rows(random, 9, kVocab);
      const auto a = decode_rows(*credit, canvas, rows, step, 9), b = decode_rows(*threshold, canvas, rows, step, 9);
      ASSERT_EQ(effect(a), effect(b)) << seed;
      for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].confidence, b[i].confidence);
      for (const Edit& edit : a) canvas.apply(edit);
    }
  }
}

/// The remask variant, implemented on sets of positions.
std::map<Position, std::pair<EditKind, TokenId>> remask_rule(const Canvas& canvas, const std::vector<LogitRow>& rows,
                                                             const OptionMap& config) {
  std::map<Position, Candidate> open;
  std::vector<std::pair<double, Position>> low;
  for (Position p = 0; p < canvas.size(); ++p) {
    const Candidate prediction = reduce(p, rows[static_cast<std::size_t>(p)], kMask);
    if (!canvas.masked(p) && prediction.confidence >= number(config, "remask_threshold")) continue;
    open[p] = prediction;
    if (!canvas.masked(p)) low.emplace_back(prediction.confidence, p);
  }
  std::vector<std::pair<double, Position>> ranked;
  for (const auto& [p, c] : open)
    if (c.eligible) ranked.emplace_back(-c.confidence, p);
  std::sort(ranked.begin(), ranked.end());
  std::set<Position> chosen;
  for (const auto& [key, p] : ranked) {
    double run_best = 0;
    for (Position q = p; open.contains(q); --q)
      run_best = std::max(run_best, open[q].eligible ? open[q].confidence : 0);
    for (Position q = p; open.contains(q); ++q)
      run_best = std::max(run_best, open[q].eligible ? open[q].confidence : 0);
    if (-key > number(config, "threshold") || (-key == run_best && -key > number(config, "low_threshold")))
      chosen.insert(p);
  }
  if (!ranked.empty()) chosen.insert(ranked.front().second);
  for (const auto& entry : ranked)
    if (chosen.size() < low.size() + 1) chosen.insert(entry.second);
  std::map<Position, std::pair<EditKind, TokenId>> result;
  std::size_t commits = 0;
  for (Position p : chosen) {
    if (canvas.masked(p)) ++commits;
    if (canvas.masked(p) || canvas.token(p) != open[p].token)
      result[p] = {canvas.masked(p) ? EditKind::kCommit : EditKind::kRevise, open[p].token};
  }
  if (commits == 0) return {};
  std::sort(low.begin(), low.end());
  std::size_t remasks = 0;
  for (const auto& entry : low)
    if (!chosen.contains(entry.second) && ++remasks < commits) result[entry.second] = {EditKind::kRemask, -1};
  return result;
}

TEST(HierarchicalRemask, EqualsTheRestatementAndEnds) {
  int remasked = 0, revised = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const auto n = static_cast<Position>(2 + random() % 14);
    const OptionMap config = {{"threshold", .9}, {"low_threshold", .4}, {"remask_threshold", .4}};
    auto decoder = make("hierarchical-remask", config);
    Canvas canvas({}, n, kMask);
    for (std::int32_t step = 0; canvas.masked_count() > 0; ++step) {
      ASSERT_LT(step, 100);
      const auto rows = random_rows(random, static_cast<std::size_t>(n), kVocab);
      const Position masks = canvas.masked_count();
      const std::vector<Edit> edits = decode_rows(*decoder, canvas, rows, step, n);
      auto actual = effect(edits);
      // A token that is chosen again stays: an edit without effect.
      std::erase_if(actual, [&](const auto& entry) {
        return entry.second.first == EditKind::kRevise && entry.second.second == canvas.token(entry.first);
      });
      ASSERT_EQ(actual, remask_rule(canvas, rows, config)) << "seed " << seed << " step " << step;
      for (const auto& [p, edit] : actual) {
        remasked += edit.first == EditKind::kRemask;
        revised += edit.first == EditKind::kRevise;
      }
      for (const Edit& edit : edits) canvas.apply(edit);
      EXPECT_TRUE(edits.empty() || canvas.masked_count() < masks);
    }
  }
  EXPECT_GT(remasked, 20);
  EXPECT_GT(revised, 20);
}

struct EditState {
  Canvas canvas{{}, 2, 9};
  std::unique_ptr<Decoder> decoder;
  std::int32_t step = 0;

  explicit EditState(const OptionMap& config) : decoder(make("draft-edit", config)) {
    canvas.apply({0, 5, EditKind::kCommit, 1});
  }
  /// One pass; returns the tokens afterwards.
  std::vector<TokenId> pass(const LogitRow& a, const LogitRow& b) {
    for (const Edit& edit : decode_rows(*decoder, canvas, {a, b}, step++, 2)) canvas.apply(edit);
    return {canvas.token(0), canvas.token(1)};
  }
  bool held() const { return decoder->holds_window({canvas, {0, 2}, step, 2, 0, {1, 0}}); }
};

using Tokens = std::vector<TokenId>;

TEST(DraftEdit, ReferenceVector) {
  EditState state({{"threshold", .5}, {"edit_threshold", .9}});
  EXPECT_EQ(state.pass(prediction(7, .95), prediction(3, .6)), (Tokens{7, 3}));
  EXPECT_TRUE(state.held()) << "the drafts are scored once more";
  EXPECT_EQ(state.pass(prediction(7, .95), prediction(3, .6)), (Tokens{7, 3}));
  EXPECT_FALSE(state.held()) << "nothing changed";
}

TEST(DraftEdit, ThresholdsAreStrictAndTheBestDraftAlwaysGoes) {
  EditState state({{"threshold", .99}, {"edit_threshold", .96}});
  EXPECT_EQ(state.pass(prediction(7, .95), prediction(3, .6)), (Tokens{5, 3}));
}

TEST(DraftEdit, TakingTurnsIsNoticed) {
  EditState state({{"threshold", .5}, {"edit_threshold", .5}, {"max_post_steps", 1000}});
  EXPECT_EQ(state.pass(prediction(7, .95), prediction(3, .6)), (Tokens{7, 3}));
  EXPECT_EQ(state.pass(prediction(6, .95), prediction(3, .6)), (Tokens{6, 3}));
  EXPECT_TRUE(state.held());
  EXPECT_EQ(state.pass(prediction(7, .95), prediction(3, .6)), (Tokens{6, 3})) << "back to a state it has had";
  EXPECT_FALSE(state.held());
}

TEST(DraftEdit, ThePostBudgetEndsIt) {
  for (const std::int32_t budget : {0, 1, 3}) {
    EditState state({{"threshold", .5}, {"edit_threshold", .5}, {"max_post_steps", budget}});
    state.pass(prediction(7, .95), prediction(3, .6));
    std::int32_t passes = 0;
    for (; state.held(); ++passes) state.pass(prediction(1 + passes, .95), prediction(3, .6));
    EXPECT_EQ(passes, budget);
    EXPECT_EQ(state.canvas.token(0), budget == 0 ? 7 : budget) << "edits of the last pass count";
  }
}

TEST(DraftEdit, EqualsTheReportsSetsOnRandomScores) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const OptionMap config = {{"threshold", .6}, {"edit_threshold", .7}};
    auto decoder = make("draft-edit", config);
    const Position prompt = 3, n = 12;
    Canvas canvas({1, 2, 3}, n - prompt, kMask);
    for (std::int32_t step = 0; canvas.masked_count() > 0; ++step) {
      ASSERT_LT(step, 100);
      const auto rows = random_rows(random, static_cast<std::size_t>(n), kVocab);
      std::map<Position, std::pair<EditKind, TokenId>> expected;
      bool drafted = false;
      Candidate best;
      best.confidence = -1;
      for (Position p = prompt; p < n; ++p) {
        const Candidate c = reduce(p, rows[static_cast<std::size_t>(p)], kMask);
        if (!c.eligible) continue;
        if (canvas.masked(p) && c.confidence > best.confidence) best = c;
        if (canvas.masked(p) && c.confidence > .6) {
          expected[p] = {EditKind::kCommit, c.token};
          drafted = true;
        }
        if (!canvas.masked(p) && c.token != canvas.token(p) && c.confidence > .7)
          expected[p] = {EditKind::kRevise, c.token};
      }
      if (!drafted && best.confidence >= 0) expected[best.position] = {EditKind::kCommit, best.token};
      const auto edits = decode_rows(*decoder, canvas, rows, step, n);
      ASSERT_EQ(effect(edits), expected) << "seed " << seed << " step " << step;
      for (const Edit& edit : edits) canvas.apply(edit);
    }
  }
}

/// The loop with a decoder on the fake backend; returns the denoiser after its last step.
struct Loop {
  explicit Loop(const std::string& decoder, const OptionMap& options_given, std::int32_t causal_block = 0) {
    ModelDesc desc;
    desc.vocab = 100;
    desc.mask = 99;
    desc.causal_block = causal_block;
    backend = std::make_unique<test::FakeBackend>(desc);
    cache = *backend->make_cache(29);
    DenoiseOptions options;
    options.exact_length = true;
    denoiser = std::make_unique<Denoiser>(backend->desc(), Canvas({1, 2, 3, 4, 5}, 24, 99),
                                          Method{*make_window({"block"}, {BlockOrigin::kPromptEnd, 8}),
                                                 *make_cache_policy({"none"}), make(decoder, options_given, 24)},
                                          options, *cache, nullptr);
  }
  bool step() {
    const auto batch = denoiser->prepare();
    if (batch.empty()) return false;
    EXPECT_TRUE(denoiser->absorb(*backend->forward(batch)));
    return true;
  }
  std::unique_ptr<test::FakeBackend> backend;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<Denoiser> denoiser;
};

TEST(Revision, TextIsFinalOnlyWhenItsBlockIs) {
  for (const char* name : {"draft-edit", "hierarchical-remask"}) {
    Loop loop(name, test::fitting(decoders(), name, {{"threshold", .9}, {"edit_threshold", .5}}));
    Tokens final_tokens;
    for (int steps = 0; loop.step() && steps < 500; ++steps) {
      const Position settled = loop.denoiser->settled();
      EXPECT_EQ((settled - 5) % 8, 0) << name;
      for (std::size_t i = 0; i < final_tokens.size(); ++i)
        EXPECT_EQ(loop.denoiser->canvas().token(static_cast<Position>(i)), final_tokens[i]) << name;
      final_tokens.clear();
      for (Position p = 0; p < settled; ++p) final_tokens.push_back(loop.denoiser->canvas().token(p));
    }
    EXPECT_EQ(loop.denoiser->settled(), 29) << name;
    EXPECT_EQ(loop.denoiser->canvas().masked_count(), 0) << name;
  }
}

TEST(Revision, WithoutEditsDraftEditOnlyAddsOnePassPerBlock) {
  Loop plain("llada2", {{"threshold", .9}}), edit("draft-edit", {{"threshold", .9}, {"edit_threshold", 2}});
  while (plain.step()) {
  }
  while (edit.step()) {
  }
  for (Position p = 0; p < 29; ++p) EXPECT_EQ(plain.denoiser->canvas().token(p), edit.denoiser->canvas().token(p));
  EXPECT_EQ(edit.denoiser->counters().nfe, plain.denoiser->counters().nfe + 3);
}

TEST(Revision, ProgressIsForcedWhileOnlyEditsAreFound) {
  // Every masked position predicts the mask, and every other token is edited in every pass.
  Loop loop("draft-edit", {{"threshold", .5}, {"edit_threshold", 0}, {"max_post_steps", 4}});
  std::uint32_t calls = 0;
  loop.backend->tamper = [&](RowScore& score) {
    score.overruled = loop.denoiser->canvas().masked(score.position);
    score.token = static_cast<TokenId>(++calls % 50);
  };
  int steps = 0;
  while (loop.step() && ++steps < 500) {
  }
  EXPECT_EQ(loop.denoiser->counters().forced, 24);
  EXPECT_EQ(loop.denoiser->counters().nfe, 24 + 3 * 4);
}

}  // namespace
}  // namespace dllm
