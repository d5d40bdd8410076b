// Decoders that only commit, against hand-computed vectors and against plain reimplementations of their rules on random
// scores.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numbers>
#include <set>

#include "decode/testing/make_method.h"
#include "decode/testing/random_scores.h"

namespace dllm {
namespace {

using test::decode_rows;
using test::LogitRow;
using test::random_rows;
using test::reduce;
using P = std::set<Position>;

constexpr TokenId kMask = 11;
constexpr std::size_t kVocab = 12;

std::unique_ptr<Decoder> make(const std::string& name, const OptionMap& options, Position length = 0,
                              bool compat = false) {
  return test::decoder_of(name, options, length, compat);
}

/// One step of a reimplemented rule: which of the eligible and of all masked positions it commits.
struct Situation {
  std::vector<Candidate> all;       ///< masked, ascending
  std::vector<Candidate> eligible;  ///< of them
  std::int32_t step;
  Position window, masks_at_start;
};
using Rule = std::function<P(const Situation&)>;

P positions_of(const std::vector<Candidate>& candidates) {
  P result;
  for (const Candidate& c : candidates) result.insert(c.position);
  return result;
}

/// The n with the largest key.
P best(std::vector<Candidate> candidates, std::size_t n, const std::function<double(const Candidate&)>& key) {
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    return std::make_pair(-key(a), a.position) < std::make_pair(-key(b), b.position);
  });
  if (candidates.size() > n) candidates.resize(n);
  return positions_of(candidates);
}
double confidence(const Candidate& c) { return c.confidence; }

P above(const std::vector<Candidate>& candidates, const std::function<bool(const Candidate&)>& holds) {
  P result;
  for (const Candidate& c : candidates)
    if (holds(c)) result.insert(c.position);
  return result;
}

/// Decodes whole windows of random scores, new ones in every step, and compares each step with the rule.
void check(const std::string& name, const OptionMap& options, const Rule& rule) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto n = static_cast<Position>(1 + random() % 20);
    auto decoder = make(name, options, n);
    Canvas canvas({}, n, kMask);
    for (std::int32_t step = 0; canvas.masked_count() > 0; ++step) {
      ASSERT_LT(step, 200) << name << " does not end, seed " << seed;
      const std::vector<LogitRow> rows = random_rows(random, static_cast<std::size_t>(n), kVocab);
      Situation now{{}, {}, step, n, n};
      for (Position p = 0; p < n; ++p)
        if (canvas.masked(p)) now.all.push_back(reduce(p, rows[static_cast<std::size_t>(p)], kMask));
      for (const Candidate& c : now.all)
        if (c.eligible) now.eligible.push_back(c);
      P committed;
      for (const Edit& edit : decode_rows(*decoder, canvas, rows, step, n)) {
        EXPECT_EQ(edit.kind, EditKind::kCommit);
        EXPECT_TRUE(committed.insert(edit.position).second) << "twice";
        EXPECT_EQ(edit.token, reduce(edit.position, rows[static_cast<std::size_t>(edit.position)], kMask).token);
        canvas.apply(edit);
      }
      ASSERT_EQ(committed, rule(now)) << name << " seed " << seed << " step " << step;
      ASSERT_EQ(committed.empty(), now.eligible.empty()) << name << ": no progress";
    }
  }
}

TEST(Margin, IsTheThresholdRuleOnTheLead) {
  for (const double threshold : {0.0, 0.3, 0.9, 1.1})
    check("margin", {{"threshold", threshold}}, [&](const Situation& now) {
      double top = -1;
      for (const Candidate& c : now.eligible) top = std::max(top, c.margin);
      return above(now.eligible, [&](const Candidate& c) { return c.margin >= threshold || c.margin >= top - 1e-5; });
    });
}

TEST(EntropyBound, TakesTheLongestPrefixWithinTheBound) {
  for (const double bound : {0.0, 0.35, 2.0, 1e6})
    check("entropy-bound", {{"entropy_bound", bound}}, [&](const Situation& now) {
      // All prefixes, longest first.
      for (std::size_t n = now.eligible.size(); n > 1; --n) {
        std::vector<double> entropies;
        for (const Candidate& c : now.eligible) entropies.push_back(c.entropy);
        std::sort(entropies.begin(), entropies.end());
        double sum = 0;
        for (std::size_t i = 0; i < n; ++i) sum += entropies[i];
        if (sum <= bound) return best(now.eligible, n, [](const Candidate& c) { return -c.entropy; });
      }
      return best(now.eligible, 1, [](const Candidate& c) { return -c.entropy; });
    });
}

/// Commits per step of entropy-exit if no position is below the threshold.
std::vector<std::size_t> exit_schedule(Position masks, std::int32_t steps, bool cosine) {
  auto decoder = make("entropy-exit",
                      {{"steps", steps}, {"entropy_threshold", 0}, {"schedule", cosine ? "cosine" : "linear"}}, masks);
  Canvas canvas({}, masks, kMask);
  std::vector<std::size_t> counts;
  std::mt19937_64 random(1);
  std::vector<LogitRow> rows = random_rows(random, static_cast<std::size_t>(masks), kVocab);
  for (LogitRow& row : rows) row.back() = -100;
  for (std::int32_t step = 0; canvas.masked_count() > 0 && step < 100; ++step) {
    const auto edits = decode_rows(*decoder, canvas, rows, step, masks);
    for (const Edit& edit : edits) canvas.apply(edit);
    counts.push_back(edits.size());
  }
  return counts;
}

TEST(EntropyExit, ReferenceSchedules) {
  EXPECT_EQ(exit_schedule(32, 8, true), (std::vector<std::size_t>{1, 2, 3, 4, 5, 5, 6, 6}));
  EXPECT_EQ(exit_schedule(32, 8, false), (std::vector<std::size_t>(8, 4)));
}

TEST(EntropyExit, TakesWhatIsSureBesidesTheSchedule) {
  check("entropy-exit", {{"steps", 6}, {"entropy_threshold", 1.0}}, [](const Situation& now) {
    const std::int32_t steps = std::min<std::int32_t>(6, now.window), t = std::min(now.step, steps - 1);
    const auto angle = [&](int i) { return std::numbers::pi * i / (2.0 * steps); };
    const double share = (std::cos(angle(t)) - std::cos(angle(t + 1))) / std::cos(angle(t));
    const auto quota = static_cast<std::size_t>(std::max(1.0, std::round(share * static_cast<double>(now.all.size()))));
    P result = best(now.eligible, quota, [](const Candidate& c) { return -c.entropy; });
    result.merge(above(now.eligible, [](const Candidate& c) { return c.entropy < 1.0; }));
    return result;
  });
}

TEST(Llada2, CommitsExactlyOneWhereNothingIsConfident) {
  auto decoder = make("llada2", {{"steps", 32}, {"threshold", .95}}, 32);
  const Canvas canvas({}, 32, kMask);
  std::vector<LogitRow> rows(32, LogitRow{0, 1, 0, 0});
  rows[17] = {0, 2, 0, 0};
  const auto edits = decode_rows(*decoder, canvas, rows, 0, 32);
  ASSERT_EQ(edits.size(), 1u);
  EXPECT_EQ(edits[0].position, 17);
}

TEST(Llada2, ThresholdOrTheShareOfTheSchedule) {
  for (const std::int32_t steps : {1, 4, 40})
    for (const double threshold : {.3, .8, 1.1})
      check("llada2", {{"steps", steps}, {"threshold", threshold}}, [&](const Situation& now) {
        const std::int32_t s = std::min<std::int32_t>(steps, now.window);
        const std::int32_t q = now.step >= s ? 1 : now.window / s + (now.step < now.window % s ? 1 : 0);
        const P high = above(now.eligible, [&](const Candidate& c) { return c.confidence > threshold; });
        return high.size() >= static_cast<std::size_t>(q) ? high
                                                          : best(now.eligible, static_cast<std::size_t>(q), confidence);
      });
}

TEST(Sdar, SequentialStaticAndDynamic) {
  for (const std::int32_t steps : {2, 5, 40}) {
    const auto share = [&](const Situation& now) {
      const std::int32_t s = std::min<std::int32_t>(steps, now.masks_at_start);
      return static_cast<std::size_t>(
          now.step >= s ? 1 : now.masks_at_start / s + (now.step < now.masks_at_start % s ? 1 : 0));
    };
    check("sdar-sequential", {{"steps", steps}}, [&](const Situation& now) {
      return best(now.eligible, share(now), [](const Candidate& c) { return static_cast<double>(-c.position); });
    });
    check("sdar-static", {{"steps", steps}},
          [&](const Situation& now) { return best(now.eligible, share(now), confidence); });
    for (const double threshold : {.4, .85})
      check("sdar-dynamic", {{"steps", steps}, {"threshold", threshold}}, [&](const Situation& now) {
        const P high = above(now.eligible, [&](const Candidate& c) { return c.confidence >= threshold; });
        return high.size() >= share(now) ? high : best(now.eligible, share(now), confidence);
      });
  }
}

// generate.py's get_num_transfer_tokens(block_length, denoising_steps), whatever the prompt has of the block.
TEST(Sdar, UnderCompatStepsCountABlocksPasses) {
  auto decoder = test::decoder_of("sdar-sequential", {{"steps", std::int64_t{3}}}, /*length=*/40, /*compat=*/true);
  Canvas canvas(std::vector<TokenId>(2, 0), 6, kMask);
  std::mt19937_64 random(1);
  std::vector<LogitRow> rows = random_rows(random, 8, kVocab);
  for (LogitRow& row : rows) row.back() = -100;
  std::vector<std::size_t> counts;
  for (std::int32_t step = 0; canvas.masked_count() > 0 && step < 10; ++step) {
    const auto edits = decode_rows(*decoder, canvas, rows, step, 6);
    for (const Edit& edit : edits) canvas.apply(edit);
    counts.push_back(edits.size());
  }
  EXPECT_EQ(counts, (std::vector<std::size_t>{3, 3})) << "of 8 positions: 3, 3, 2";
}

TEST(Sdar, ConfidenceIsOfTheSampledDistribution) {
  ScoreRequest request;
  make("sdar-dynamic", {})->configure(request);
  EXPECT_EQ(request.distribution, ScoreDistribution::kSampled);
}

/// Candidates of given confidences at given positions, the others of [0, n) being decided.
P hierarchy(const std::map<Position, double>& confidences, double low) {
  auto decoder = make("hierarchical", {{"threshold", .9}, {"low_threshold", low}});
  Canvas canvas({}, 6, kMask);
  std::vector<Candidate> candidates;
  for (Position p = 0; p < 6; ++p) {
    const auto found = confidences.find(p);
    if (found == confidences.end()) {
      canvas.apply({p, 1, EditKind::kCommit, 1});
      continue;
    }
    Candidate c;
    c.position = p;
    c.token = 1;
    c.confidence = found->second;
    c.log_odds = std::log(found->second / (1 - found->second));
    candidates.push_back(c);
  }
  P result;
  for (const Edit& edit : decoder->decode({canvas, {0, 6}, 0, 5, 0, {1, 0}}, candidates)) result.insert(edit.position);
  return result;
}

TEST(Hierarchical, ReferenceVectors) {
  const std::map<Position, double> scores = {{0, .5}, {1, .3}, {2, .45}, {4, .2}, {5, .35}};
  EXPECT_EQ(hierarchy(scores, .4), (P{0}));
  EXPECT_EQ(hierarchy(scores, .3), (P{0, 5}));
  EXPECT_EQ(hierarchy(scores, .9), (P{0})) << "the best of all is always committed";
}

TEST(Hierarchical, BestOfEachRunAndWhatIsSure) {
  for (const double low : {.2, .4, .7})
    check("hierarchical", {{"threshold", .9}, {"low_threshold", low}}, [&](const Situation& now) {
      P result = above(now.eligible, [](const Candidate& c) { return c.confidence > .9; });
      result.merge(best(now.eligible, 1, confidence));
      const P masks = positions_of(now.all);
      for (const Candidate& c : now.eligible) {
        // A position is its run's best if no eligible one reachable over masks only is better.
        bool is_best = c.confidence > low;
        for (const Candidate& other : now.eligible) {
          bool connected = true;
          for (Position p = std::min(c.position, other.position); p <= std::max(c.position, other.position); ++p)
            connected = connected && masks.contains(p);
          is_best = is_best && !(connected && other.confidence > c.confidence);
        }
        if (is_best) result.insert(c.position);
      }
      return result;
    });
}

}  // namespace
}  // namespace dllm
