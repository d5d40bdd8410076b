// wino, cover and t2m, which mask tokens again, and klass, against the authors' programs on rows of probabilities.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "decode/testing/make_method.h"
#include "decode/testing/random_scores.h"
#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::LogitRow;

constexpr TokenId kMasked = 11;
constexpr std::size_t kTokens = 12;
using Rows = std::vector<LogitRow>;

/// Rows that never prefer the mask, some of them sharp.
Rows drawn_rows(std::mt19937_64& random, std::size_t count) {
  Rows rows = test::random_rows(random, count, kTokens);
  for (LogitRow& row : rows) row[kMasked] = -50;
  return rows;
}

std::vector<double> softmax(const LogitRow& z) {
  std::vector<double> p;
  double total = 0;
  for (const float logit : z) total += std::exp(static_cast<double>(logit));
  for (const float logit : z) p.push_back(std::exp(static_cast<double>(logit)) / total);
  return p;
}

std::size_t best_of(const std::vector<double>& p) {
  return static_cast<std::size_t>(std::max_element(p.begin(), p.end()) - p.begin());
}

/// One pass of a decoder over the window of all rows: predictions from `rows`, of shadow rows from `shadows`.
struct Passed {
  std::vector<Position> shadowed;
  std::map<Position, TokenId> commits;
  std::set<Position> remasks;
};
Passed pass(Decoder& decoder, const Canvas& canvas, const Rows& rows, const Rows& shadows, std::int32_t step) {
  const auto n = static_cast<Position>(rows.size());
  const DecodeContext context{canvas, {0, n}, step, n, static_cast<std::uint32_t>(step), {1, 0}};
  decoder.wanted(context);
  Passed result{decoder.shadowed(context), {}, {}};
  for (const Edit& edit : test::decode_rows(decoder, canvas, rows, step, n, shadows)) {
    EXPECT_TRUE(edit.kind == EditKind::kCommit || edit.kind == EditKind::kRemask);
    const bool once = edit.kind == EditKind::kCommit ? result.commits.emplace(edit.position, edit.token).second
                                                     : result.remasks.insert(edit.position).second;
    EXPECT_TRUE(once) << "two edits at one place";
  }
  return result;
}

void apply(Canvas& canvas, const Passed& passed) {
  for (const auto& [position, token] : passed.commits) canvas.apply({position, token, EditKind::kCommit, 1});
  for (const Position p : passed.remasks) canvas.apply({p, kMasked, EditKind::kRemask, 0});
}

/// The block's loop of decoding_wino(), on its arrays.
struct PublishedWino {
  double threshold, back;
  std::int64_t last_accept = 30;

  Passed step(const Canvas& canvas, const Rows& rows, const Rows& shadows) {
    const auto n = static_cast<Position>(rows.size());
    std::int64_t masks = 0;
    std::vector<std::pair<double, Position>> confidence, confidence_back;
    std::map<Position, TokenId> x0;
    for (Position p = 0; p < n; ++p) {
      const auto i = static_cast<std::size_t>(p);
      if (canvas.masked(p)) {
        const std::vector<double> probabilities = softmax(rows[i]);
        x0[p] = static_cast<TokenId>(best_of(probabilities));
        confidence.emplace_back(-probabilities[best_of(probabilities)], p);
        ++masks;
      } else {
        confidence_back.emplace_back(softmax(shadows[i])[static_cast<std::size_t>(canvas.token(p))], p);
      }
    }
    std::ranges::sort(confidence);
    std::ranges::sort(confidence_back);
    const auto most = std::min<std::int64_t>(
        std::max<std::int64_t>(static_cast<std::int64_t>(static_cast<double>(masks) * 0.7), 5), 20);
    std::int64_t count = std::ranges::count_if(confidence, [&](const auto& one) { return -one.first > threshold; });
    count = count > most ? most : std::max<std::int64_t>(count, 1);
    Passed result;
    for (std::int64_t i = 0; i < count; ++i) {
      const Position p = confidence[static_cast<std::size_t>(i)].second;
      result.commits[p] = x0[p];
    }
    if (count > 1) {
      std::int64_t doubted = std::ranges::count_if(confidence_back, [&](const auto& one) { return one.first < back; });
      if (doubted >= last_accept) doubted = last_accept - 1;
      for (std::int64_t i = 0; i < doubted; ++i)
        result.remasks.insert(confidence_back[static_cast<std::size_t>(i)].second);
    }
    last_accept = count;
    return result;
  }
};

TEST(Wino, IsThePublishedLoop) {
  std::size_t remasked = 0, capped = 0, limited = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t n = 4 + random() % 40;
    const double threshold = seed % 2 == 0 ? 0.3 : 0.6, back = seed % 3 == 0 ? 0.5 : 0.9;
    const auto decoder = test::decoder_of("wino", {{"threshold", threshold}, {"threshold_back", back}});
    PublishedWino published{threshold, back};
    Canvas canvas({}, static_cast<Position>(n), kMasked);
    std::int32_t step = 0;
    for (; canvas.masked_count() > 0; ++step) {
      ASSERT_LT(step, 200) << "the block does not end";
      const Rows rows = drawn_rows(random, n), shadows = drawn_rows(random, n);
      const std::int64_t before = published.last_accept;
      const Passed expected = published.step(canvas, rows, shadows), ours = pass(*decoder, canvas, rows, shadows, step);
      ASSERT_EQ(ours.commits, expected.commits) << "seed " << seed << " step " << step;
      ASSERT_EQ(ours.remasks, expected.remasks) << "seed " << seed << " step " << step;
      remasked += ours.remasks.size();
      capped += ours.commits.size() == 20 ? 1 : 0;
      limited += static_cast<std::int64_t>(ours.remasks.size()) == before - 1 && before > 1 ? 1 : 0;
      apply(canvas, ours);
    }
  }
  EXPECT_GT(remasked, 100u);
  EXPECT_GT(capped, 5u);
  EXPECT_GT(limited, 5u) << "no pass was kept from taking back as many as the one before committed";
}

TEST(Wino, AsksForTheTokensOfItsBlockOnly) {
  Canvas canvas({5, 6}, 6, kMasked);
  canvas.apply({4, 7, EditKind::kCommit, 1});
  canvas.apply({7, 3, EditKind::kCommit, 1});
  const auto decoder = test::decoder_of("wino", {});
  const DecodeContext context{canvas, {1, 6}, 0, 4, 0, {1, 0}};
  EXPECT_EQ(decoder->shadowed(context), (std::vector<Position>{4})) << "neither the prompt nor a later block";
}

/// _token_edit_step() of the authors' LLaDA2MoeRemaskLM, on the block's probabilities.
struct PublishedT2m {
  std::string rule;
  double bound;
  Rows before{};
  std::map<Position, int> counts{};

  Passed step(const Canvas& canvas, const Rows& rows) {
    const auto n = static_cast<Position>(rows.size());
    Passed result;
    std::vector<std::pair<double, Position>> masks, scores;
    std::int64_t editable = 0;
    for (Position p = 0; p < n; ++p) {
      const std::vector<double> now = softmax(rows[static_cast<std::size_t>(p)]);
      const std::size_t x0 = best_of(now);
      if (canvas.masked(p)) {
        masks.emplace_back(-now[x0], p);
        continue;
      }
      ++editable;
      const auto token = static_cast<std::size_t>(canvas.token(p));
      bool suspect = false;
      double score = 0;
      if (rule == "unlikely") suspect = now[token] < bound, score = now[token];
      if (rule == "overruled") suspect = now[x0] > bound && x0 != token, score = 1 - now[x0];
      if (rule == "falling" && !before.empty()) {
        const double drop = softmax(before[static_cast<std::size_t>(p)])[token] - now[token];
        suspect = drop > bound, score = -drop;
      }
      if (suspect && counts[p] < 5) scores.emplace_back(score, p);
    }
    before = editable > 0 ? rows : Rows{};
    std::ranges::sort(masks);
    std::ranges::sort(scores);
    for (std::size_t i = 0; i < masks.size(); ++i)
      if (i == 0 || -masks[i].first > 0.7)
        result.commits[masks[i].second] =
            static_cast<TokenId>(best_of(softmax(rows[static_cast<std::size_t>(masks[i].second)])));
    const auto most = std::max<std::size_t>(1, static_cast<std::size_t>(0.25 * static_cast<double>(editable)));
    for (std::size_t i = 0; i < std::min(most, scores.size()); ++i) {
      result.remasks.insert(scores[i].second);
      ++counts[scores[i].second];
    }
    return result;
  }
};

TEST(T2m, IsThePublishedStep) {
  for (const std::string rule : {"unlikely", "overruled", "falling"}) {
    std::size_t remasked = 0, shared = 0, often = 0;
    for (std::uint64_t seed = 1; seed <= 120; ++seed) {
      std::mt19937_64 random(seed);
      const std::size_t n = 2 + random() % 16;
      const double bound = rule == "overruled" ? 0.6 : rule == "falling" ? 0.3 : 0.5;
      const auto decoder = test::decoder_of("t2m", {{"suspect", rule}, {"suspect_bound", bound}});
      PublishedT2m published{rule, bound};
      Canvas canvas({}, static_cast<Position>(n), kMasked);
      for (std::int32_t step = 0; canvas.masked_count() > 0; ++step) {
        ASSERT_LT(step, 300) << "the block does not end";
        const Rows rows = drawn_rows(random, n);
        const Passed expected = published.step(canvas, rows), ours = pass(*decoder, canvas, rows, rows, step);
        ASSERT_EQ(ours.commits, expected.commits) << rule << " seed " << seed << " step " << step;
        ASSERT_EQ(ours.remasks, expected.remasks) << rule << " seed " << seed << " step " << step;
        remasked += ours.remasks.size();
        shared += ours.remasks.size() > 1 ? 1 : 0;
        apply(canvas, ours);
      }
      for (const auto& [position, count] : published.counts) often += count == 5 ? 1 : 0;
    }
    EXPECT_GT(remasked, 100u) << rule;
    EXPECT_GT(shared, 5u) << rule;
    if (rule == "unlikely") {
      EXPECT_GT(often, 5u) << "no position reached its bound";
    }
  }
}

TEST(T2m, LooksAtAFinishedBlockUntilNothingIsSuspect) {
  const auto decoder = test::decoder_of("t2m", {});
  Canvas canvas({}, 2, kMasked);
  const Rows sure = {test::prediction(3, .95), test::prediction(4, .95)};
  const Rows doubt = {test::prediction(3, .95), test::prediction(5, .9)};
  apply(canvas, pass(*decoder, canvas, sure, sure, 0));
  ASSERT_EQ(canvas.masked_count(), 0);
  const DecodeContext context{canvas, {0, 2}, 1, 2, 1, {1, 0}};
  EXPECT_TRUE(decoder->holds_window(context)) << "its last tokens were never looked at";
  const Passed again = pass(*decoder, canvas, doubt, doubt, 1);
  EXPECT_EQ(again.remasks, (std::set<Position>{1}));
  apply(canvas, again);
  apply(canvas, pass(*decoder, canvas, doubt, doubt, 2));
  EXPECT_EQ(canvas.token(1), 5);
  EXPECT_TRUE(decoder->holds_window(context));
  EXPECT_TRUE(pass(*decoder, canvas, doubt, doubt, 3).remasks.empty());
  EXPECT_FALSE(decoder->holds_window(context));
}

/// stable_confident_decode(), with alg "klass", on whole distributions.
struct PublishedKlass {
  double threshold, bound;
  std::size_t history;
  Rows before{};
  std::map<Position, std::vector<double>> divergences{};

  std::map<Position, TokenId> step(const Canvas& canvas, const Rows& rows) {
    std::map<Position, TokenId> ready;
    std::pair<double, Position> best{-1, -1};
    for (Position p = 0; p < canvas.size(); ++p) {
      const auto i = static_cast<std::size_t>(p);
      const std::vector<double> now = softmax(rows[i]);
      const std::vector<double> then = before.empty() ? std::vector<double>(kTokens, 0) : softmax(before[i]);
      double divergence = 0;
      for (std::size_t t = 0; t < kTokens; ++t)
        divergence += now[t] * (std::log(now[t] + 1e-12) - std::log(then[t] + 1e-12));
      std::vector<double>& kept = divergences[p];
      kept.push_back(divergence);
      if (!canvas.masked(p)) continue;
      const std::size_t x0 = best_of(now);
      if (now[x0] > best.first) best = {now[x0], p};
      bool stable = kept.size() >= history;
      for (std::size_t back = 0; back < history && stable; ++back) stable = kept[kept.size() - 1 - back] < bound;
      if (stable && now[x0] > threshold) ready[p] = static_cast<TokenId>(x0);
    }
    before = rows;
    if (ready.empty())
      ready[best.second] = static_cast<TokenId>(best_of(softmax(rows[static_cast<std::size_t>(best.second)])));
    return ready;
  }
};

TEST(Klass, IsThePublishedLoopIfAllTokensAreCompared) {
  std::size_t together = 0, held = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t n = 2 + random() % 12;
    const auto history = static_cast<std::int32_t>(1 + seed % 3);
    const double bound = seed % 2 == 0 ? 0.01 : 0.1, threshold = seed % 5 == 0 ? 0.9 : 0.6;
    const auto decoder = test::decoder_of(
        "klass", {{"threshold", threshold}, {"kl_threshold", bound}, {"kl_history", history}, {"kl_tokens", 12}});
    PublishedKlass published{threshold, bound, static_cast<std::size_t>(history)};
    Canvas canvas({}, static_cast<Position>(n), kMasked);
    Rows rows = drawn_rows(random, n);
    for (std::int32_t step = 0; canvas.masked_count() > 0; ++step) {
      const auto expected = published.step(canvas, rows);
      const Passed ours = pass(*decoder, canvas, rows, rows, step);
      ASSERT_EQ(ours.commits, expected) << "seed " << seed << " step " << step;
      together += expected.size() > 1 ? 1 : 0;
      for (Position p = 0; p < canvas.size(); ++p) {
        const std::vector<double> now = softmax(rows[static_cast<std::size_t>(p)]);
        held += canvas.masked(p) && !expected.contains(p) && now[best_of(now)] > threshold ? 1 : 0;
      }
      apply(canvas, ours);
      const float change = seed % 4 == 0 ? 0.5f : 0.1f;
      for (LogitRow& row : rows)
        for (std::size_t t = 0; t + 1 < kTokens; ++t) row[t] += std::normal_distribution<float>(0, change)(random);
    }
  }
  EXPECT_GT(together, 20u);
  EXPECT_GT(held, 20u) << "no confident mask had to wait";
}

// Fewer compared tokens make a divergence smaller, so that more is stable.
TEST(Klass, FewerComparedTokensHoldNothingBack) {
  std::mt19937_64 random(5);
  std::size_t more = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const Rows first = drawn_rows(random, 8);
    Rows second = first;
    for (LogitRow& row : second)
      for (std::size_t t = 0; t + 1 < kTokens; ++t) row[t] += std::normal_distribution<float>(0, 0.3f)(random);
    std::set<Position> ready[2];
    for (const int few : {0, 1}) {
      const auto decoder = test::decoder_of(
          "klass", {{"threshold", 0.0}, {"kl_threshold", 0.05}, {"kl_history", 1}, {"kl_tokens", few == 1 ? 2 : 12}});
      const Canvas canvas({}, 8, kMasked);
      pass(*decoder, canvas, first, first, 0);
      for (const auto& [position, token] : pass(*decoder, canvas, second, second, 1).commits)
        ready[few].insert(position);
    }
    if (ready[0].size() > 1) {  // one may be the best of none
      EXPECT_TRUE(std::ranges::includes(ready[1], ready[0]));
    }
    more += ready[1].size() > ready[0].size() ? 1 : 0;
  }
  EXPECT_GT(more, 0u);
}

TEST(Cover, JudgesWhatHasNotSeenTheLatestTokens) {
  const auto decoder = test::decoder_of("cover", {{"threshold", 0.8}, {"most_seeds", 2}, {"max_remasks", 1}});
  Canvas canvas({}, 5, kMasked);
  Rows rows = {test::prediction(1, .9), test::prediction(2, .85), test::prediction(3, .6), test::prediction(4, .6),
               test::prediction(5, .6)};
  Passed first = pass(*decoder, canvas, rows, rows, 0);
  EXPECT_TRUE(first.shadowed.empty());
  EXPECT_EQ(first.commits, (std::map<Position, TokenId>{{0, 1}, {1, 2}}));
  apply(canvas, first);
  // The less certain of the two first; the others' prediction of 0 is another token.
  Rows shadows = rows;
  shadows[0] = test::prediction(7, .9);
  Passed second = pass(*decoder, canvas, rows, shadows, 1);
  EXPECT_EQ(second.shadowed, (std::vector<Position>{0, 1})) << "tokens of one pass have not seen each other";
  EXPECT_EQ(second.remasks, (std::set<Position>{0}));
  EXPECT_EQ(second.commits, (std::map<Position, TokenId>{{2, 3}})) << "at least the best";
  apply(canvas, second);
  Passed third = pass(*decoder, canvas, rows, shadows, 2);
  EXPECT_EQ(third.shadowed.size(), 2u);
  EXPECT_EQ(third.commits, (std::map<Position, TokenId>{{0, 1}}));
  apply(canvas, third);
  Passed fourth = pass(*decoder, canvas, rows, shadows, 3);
  EXPECT_EQ(std::ranges::count(fourth.shadowed, 0), 0) << "it was masked again once, which is the bound";
}

TEST(Cover, DoesNotJudgeAgainWhatHasNotChanged) {
  const auto decoder = test::decoder_of("cover", {{"threshold", 0.8}});
  Canvas canvas({}, 3, kMasked);
  const Rows rows = {test::prediction(1, .9), test::prediction(2, .9), test::prediction(3, .5)};
  apply(canvas, pass(*decoder, canvas, rows, rows, 0));
  // Judged in this pass, which also commits 2: one change since.
  const Passed second = pass(*decoder, canvas, rows, rows, 1);
  EXPECT_EQ(second.shadowed, (std::vector<Position>{0, 1}));
  apply(canvas, second);
  EXPECT_EQ(pass(*decoder, canvas, rows, rows, 2).shadowed, (std::vector<Position>{0, 1})) << "2 has seen both";
  EXPECT_TRUE(pass(*decoder, canvas, rows, rows, 3).shadowed.empty());
}

TEST(Cover, TakesAPositionBackSoOftenAtMost) {
  std::mt19937_64 random(3);
  const auto decoder = test::decoder_of("cover", {{"max_remasks", std::int64_t{2}}, {"verify_threshold", 1.0}});
  Canvas canvas({}, 12, kMasked);
  std::map<Position, int> remasks;
  for (std::int32_t step = 0; step < 100 && canvas.masked_count() > 0; ++step) {
    const Passed passed = pass(*decoder, canvas, drawn_rows(random, 12), drawn_rows(random, 12), step);
    for (const Position p : passed.remasks) EXPECT_LE(++remasks[p], 2);
    apply(canvas, passed);
  }
  EXPECT_EQ(canvas.masked_count(), 0);
  EXPECT_GT(remasks.size(), 3u);
}

// Without a bound that fails, it is the threshold rule.
TEST(Cover, WithoutDoubtsItIsTheThresholdRule) {
  for (const auto& window : method_names(windows())) {
    test::FakeBackend ours(test::masked_desc()), theirs(test::masked_desc());
    test::MethodRun run{.window = window, .decoder = "cover"};
    run.config = {{"threshold", 0.7}, {"verify_threshold", 0.0}};
    const test::MethodResult a = test::run_method(ours, run);
    run = {.window = window, .decoder = "threshold", .config = {{"threshold", 0.7}}};
    const test::MethodResult b = test::run_method(theirs, run);
    EXPECT_EQ(a.tokens, b.tokens) << window;
    EXPECT_EQ(a.commit_pass, b.commit_pass) << window;
    EXPECT_GT(a.counters.rows_forwarded, b.counters.rows_forwarded) << window;
  }
}

}  // namespace
}  // namespace dllm
