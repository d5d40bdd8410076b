#include "cpu/score_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/rng.h"
#include "cpu/kernels/test_data.h"
#include "cpu/testing/head_fixture.h"

namespace dllm::cpu {
namespace {

using test::HeadFixture;

constexpr double kInf = std::numeric_limits<double>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

/// The definitions of reduction.h, implemented directly over a whole row.
class Naive {
 public:
  Naive(const std::vector<float>& z, const ScoreRequest& request, Position position)
      : request_(request), position_(position), tempered_(request.temperature > 0 ? 1 / request.temperature : 1) {
    for (std::size_t i = 0; i < z.size(); ++i) {
      const TopToken token{static_cast<TokenId>(i), z[i]};
      if (std::isnan(z[i])) continue;
      if (count(token.token)) counted_.push_back(token);
      if (count(token.token) || choose(token.token)) existing_.push_back(token);
    }
    std::sort(counted_.begin(), counted_.end(), better);
    std::sort(existing_.begin(), existing_.end(), better);
    top_k_ = request.top_k > 0 && static_cast<std::size_t>(request.top_k) < z.size();
  }

  RowScore score() const {
    RowScore score;
    score.position = position_;
    score.log_odds = -kInf;
    const std::size_t kept = kept_count();
    predict(kept, score);
    const bool sampled = request_.distribution == ScoreDistribution::kSampled;
    describe(sampled ? kept : counted_.size(), sampled ? tempered_ : 1, score);
    return score;
  }

 private:
  bool choose(TokenId t) const {
    return std::none_of(request_.rules.begin(), request_.rules.end(),
                        [t](const TokenRule& r) { return r.token == t && !r.choose; });
  }
  bool count(TokenId t) const {
    return std::none_of(request_.rules.begin(), request_.rules.end(),
                        [t](const TokenRule& r) { return r.token == t && !r.count; });
  }
  double distance(std::size_t i, double beta) const {
    if (counted_[i].logit == counted_[0].logit) return 0;
    return (static_cast<double>(counted_[i].logit) - static_cast<double>(counted_[0].logit)) * beta;
  }
  std::vector<double> weights(double beta, std::size_t n) const {
    std::vector<double> w;
    for (std::size_t i = 0; i < n; ++i) w.push_back(std::exp(distance(i, beta)));
    return w;
  }

  std::size_t kept_count() const {
    std::size_t kept = counted_.size();
    if (request_.top_p < 1) {
      const std::vector<double> w = weights(tempered_, kept);
      const double total = std::accumulate(w.begin(), w.end(), 0.0);
      double before = 0;
      std::size_t n = 0;
      for (; n < w.size() && (n == 0 || before <= request_.top_p * total); ++n) before += w[n];
      kept = n;
    }
    if (top_k_) kept = std::min(kept, static_cast<std::size_t>(request_.top_k));
    for (std::size_t i = 0; i < kept; ++i)
      if (request_.min_p > 0 && distance(i, tempered_) < std::log(request_.min_p)) return i;
    return kept;
  }

  void predict(std::size_t kept, RowScore& score) const {
    const bool draws = request_.temperature > 0;
    std::vector<TopToken> pool = existing_;
    if (draws && (request_.top_p < 1 || request_.min_p > 0 || top_k_))
      pool.assign(counted_.begin(), counted_.begin() + static_cast<std::ptrdiff_t>(kept));
    TokenId winner = kNoToken;
    double chosen_key = 0, winner_key = 0;
    for (const TopToken& t : pool) {
      double key = static_cast<double>(t.logit);
      if (draws)
        key = key / request_.temperature + gumbel(request_.rng, RngPurpose::kToken, request_.step,
                                                  static_cast<std::uint32_t>(position_),
                                                  static_cast<std::uint32_t>(t.token));
      if (winner < 0 || key > winner_key) winner = t.token, winner_key = key;
      if (choose(t.token) && (score.token < 0 || key > chosen_key)) score.token = t.token, chosen_key = key;
    }
    for (std::size_t i = 0; score.token < 0 && i < existing_.size(); ++i)
      if (choose(existing_[i].token)) score.token = existing_[i].token;
    score.overruled = winner >= 0 && winner != score.token;
  }

  void describe(std::size_t n, double beta, RowScore& score) const {
    if (n == 0) return;
    const std::vector<double> w = weights(beta, n);
    const double total = std::accumulate(w.begin(), w.end(), 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const double p = w[i] / total;
      if (p > 0) score.entropy -= p * std::log(p);
      if (counted_[i].token != score.token) continue;
      score.confidence = p;
      double others = 0;
      for (std::size_t j = 0; j < n; ++j) others += j == i ? 0 : w[j];
      // ln w[i] is the distance: w[i] itself may underflow.
      score.log_odds = distance(i, beta) - std::log(others);
    }
    score.margin = (1 - (n > 1 ? w[1] : 0)) / total;
  }

  const ScoreRequest& request_;
  Position position_;
  double tempered_;
  bool top_k_ = false;
  std::vector<TopToken> counted_, existing_;  // best first
};

RowScore naive(const std::vector<float>& z, const ScoreRequest& request, Position position) {
  return Naive(z, request, position).score();
}

void expect_same(const RowScore& actual, const RowScore& expected, const std::string& what) {
  EXPECT_EQ(actual.position, expected.position) << what;
  EXPECT_EQ(actual.token, expected.token) << what;
  EXPECT_EQ(actual.overruled, expected.overruled) << what;
  EXPECT_NEAR(actual.confidence, expected.confidence, 1e-12 + 1e-10 * expected.confidence) << what;
  if (std::isinf(expected.log_odds)) {
    EXPECT_EQ(actual.log_odds, expected.log_odds) << what;
  } else {
    EXPECT_NEAR(actual.log_odds, expected.log_odds, 1e-9 * std::max(1.0, std::abs(expected.log_odds))) << what;
  }
  EXPECT_NEAR(actual.margin, expected.margin, 1e-12) << what;
  EXPECT_NEAR(actual.entropy, expected.entropy, 1e-9) << what;
}

std::vector<ScoreRequest> requests() {
  std::vector<ScoreRequest> all;
  for (double temperature : {0.0, 0.3, 1.0, 2.5})
    for (std::int32_t top_k : {0, 1, 3, 40})
      for (double top_p : {1.0, 0.95, 0.3, 0.0})
        for (ScoreDistribution distribution : {ScoreDistribution::kRaw, ScoreDistribution::kSampled})
          for (int rules = 0; rules < 2; ++rules) {
            ScoreRequest r;
            // One in three, as all combinations would take too long.
            if (all.size() % 3 == 0) r.min_p = all.size() % 2 == 0 ? 0.05 : 0.5;
            r.temperature = temperature, r.top_k = top_k, r.top_p = top_p, r.distribution = distribution;
            r.rng = {42, 3};
            r.step = static_cast<std::uint32_t>(all.size());
            if (rules == 1)
              r.rules = {{2, false, true}, {4, true, false}, {5, false, false}, {700, false, true}, {1, false, true}};
            all.push_back(r);
          }
  return all;
}

std::string describe(const ScoreRequest& r) {
  return "T " + std::to_string(r.temperature) + " k " + std::to_string(r.top_k) + " p " + std::to_string(r.top_p) +
         " min " + std::to_string(r.min_p) + (r.distribution == ScoreDistribution::kRaw ? " raw" : " sampled") +
         (r.rules.empty() ? "" : " rules");
}

TEST(ScoreHead, MatchesTheNaiveDefinitionOnRandomLogits) {
  test::Random random(3);
  HeadFixture head(2);
  std::vector<std::vector<float>> rows;
  for (int r = 0; r < 14; ++r)
    rows.push_back(random_floats(random, 2500, static_cast<float>(r % 7 == 0 ? 0.1 : 2 * r)));
  for (const ScoreRequest& request : requests()) {
    const Scores scores = head.run(rows, request);
    ASSERT_EQ(scores.rows.size(), rows.size());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      expect_same(scores.rows[r], naive(rows[r], request, static_cast<Position>(10 + r)), describe(request));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(ScoreHead, MatchesTheNaiveDefinitionOnAdversarialLogits) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> cases;
  cases.push_back(std::vector<float>(1100, 0.5f));  // all tied, over more than one chunk
  cases.push_back(std::vector<float>(10, -inf));
  cases.push_back(std::vector<float>(10, kNan));
  cases.push_back({kNan, 1, kNan, 1, 3, 3, 3, kNan, -inf});
  cases.push_back({inf, 1, inf, 0, -5, 2, 2, 2});
  cases.push_back({3e38f, -3e38f, 3e38f, 1, 2, 3, 4, 5});
  cases.push_back({0, 1000, 999, 0, 1, 2, 3, 4});
  cases.push_back({1, 200, 1, 1, 1, 1, 1, 1});
  cases.push_back({7});
  for (const std::vector<float>& z : cases) {
    HeadFixture head;
    for (const ScoreRequest& request : requests()) {
      const Scores scores = head.run({z}, request);
      expect_same(scores.rows[0], naive(z, request, 10), describe(request) + " vocab " + std::to_string(z.size()));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(ScoreHead, LogOddsKeepTheOrderOfConfidencesThatRoundToOne) {
  HeadFixture head;
  const Scores a = head.run({{80, 0, 0}}, ScoreRequest{}), b = head.run({{90, 0, 0}}, ScoreRequest{});
  EXPECT_EQ(a.rows[0].confidence, 1);
  EXPECT_EQ(b.rows[0].confidence, 1);
  EXPECT_NEAR(a.rows[0].log_odds, 80 - std::log(2.0), 1e-9);
  EXPECT_NEAR(b.rows[0].log_odds, 90 - std::log(2.0), 1e-9);
}

TEST(ScoreHead, ManyRulesInOneChunk) {
  test::Random random(8);
  const std::vector<float> z = random_floats(random, 300, 4.f);
  ScoreRequest request;
  for (TokenId t = 0; t < 120; t += 2) request.rules.push_back({t, t % 4 == 0, t % 3 == 0});
  HeadFixture head;
  for (double temperature : {0.0, 1.0}) {
    request.temperature = temperature;
    expect_same(head.run({z}, request).rows[0], naive(z, request, 10), "many rules");
  }
}

TEST(ScoreHead, SamplesFollowTheDistribution) {
  const std::vector<float> z = {0.f, 1.f, 2.f, -1.f, 0.5f, 1.5f};
  const std::vector<std::vector<float>> rows(32, z);
  HeadFixture head;
  for (const auto& [temperature, top_k, top_p] :
       {std::tuple(1.0, 0, 1.0), std::tuple(0.7, 4, 1.0), std::tuple(1.3, 0, 0.8)}) {
    ScoreRequest request;
    request.temperature = temperature, request.top_k = top_k, request.top_p = top_p;
    request.distribution = ScoreDistribution::kSampled;
    request.rng = {2024, 1};
    std::map<TokenId, int> hits;
    std::map<TokenId, double> probability;
    const int steps = 400;
    for (int step = 0; step < steps; ++step) {
      request.step = static_cast<std::uint32_t>(step);
      for (const RowScore& score : head.run(rows, request).rows) {
        ++hits[score.token];
        probability[score.token] = score.confidence;
      }
    }
    const double draws = 32.0 * steps;
    double chi_square = 0, total = 0;
    for (const auto& [token, p] : probability) {
      chi_square += std::pow(hits[token] - p * draws, 2) / (p * draws);
      total += p;
    }
    EXPECT_NEAR(total, 1, 1e-9);  // no token outside the kept ones was drawn, and all of them were
    EXPECT_LT(chi_square, 20.5);  // 99.9 % point for 5 degrees of freedom
  }
}

TEST(ScoreHead, AFlatDistributionUnderMinPNeedsASecondPass) {
  // 3000 tokens, 2000 of them within a factor of 0.6 of the likeliest: far beyond the list of the first pass.
  std::vector<std::vector<float>> rows(3, std::vector<float>(3000, 1.f));
  for (std::size_t t = 0; t < 3000; t += 3) rows[0][t] = 0.f, rows[2][t] = 0.7f;
  for (const double top_p : {1.0, 0.5}) {
    ScoreRequest request;
    request.temperature = 1, request.min_p = 0.6, request.top_p = top_p;
    request.distribution = ScoreDistribution::kSampled;
    HeadFixture head(3);
    const Scores scores = head.run(rows, request);
    for (std::size_t r = 0; r < rows.size(); ++r)
      expect_same(scores.rows[r], naive(rows[r], request, static_cast<Position>(10 + r)), "flat");
    if (top_p == 1) {
      EXPECT_NEAR(scores.rows[0].confidence, 1 / 2000.0, 1e-12);
    }
  }
}

TEST(ScoreHead, NucleusOfAFlatDistributionNeedsASecondPass) {
  // 3000 tied tokens: the nucleus of p = 0.9 holds 2701 of them, far beyond the list of the first pass.
  std::vector<std::vector<float>> rows(40, std::vector<float>(3000, 1.f));
  rows[17][123] = 9.f;  // a row that needs no second pass, among others: e^8 against 2999
  ScoreRequest request;
  request.top_p = 0.9;
  request.temperature = 1;
  request.distribution = ScoreDistribution::kSampled;
  HeadFixture head(3);
  const Scores scores = head.run(rows, request);
  for (std::size_t r = 0; r < rows.size(); ++r)
    expect_same(scores.rows[r], naive(rows[r], request, static_cast<Position>(10 + r)), "flat");
  EXPECT_NEAR(scores.rows[0].confidence, 1 / 2701.0, 1e-12);
}

TEST(ScoreHead, GuidanceCombinesTheTwoSequences) {
  test::Random random(5);
  const std::int64_t vocab = 1300;
  std::vector<std::vector<float>> rows;
  for (int r = 0; r < 82; ++r) rows.push_back(random_floats(random, vocab, 5.f));
  // Sequence 0: unconditional twin of 1; sequence 2: independent. Rows are concatenated in that order.
  std::vector<SequenceStep> batch(3);
  for (std::size_t s = 0; s < 3; ++s) {
    const std::size_t n = s == 2 ? 12 : 35;
    for (std::size_t r = 0; r < n; ++r) {
      batch[s].plan.rows.push_back({static_cast<Position>(r), 0});
      batch[s].plan.scored.push_back(static_cast<std::int32_t>(r));
    }
  }
  batch[1].guidance = Guidance{0, 1.5f};
  batch[1].request.logits = true;
  HeadFixture head(2);
  const std::vector<Scores> scores = head.run(rows, batch);
  EXPECT_TRUE(scores[0].rows.empty());
  ASSERT_EQ(scores[1].rows.size(), 35u);
  ASSERT_EQ(scores[2].rows.size(), 12u);
  ASSERT_EQ(scores[1].logits.size(), 35u * static_cast<std::size_t>(vocab));
  for (std::size_t r = 0; r < 35; ++r) {
    std::vector<float> z(static_cast<std::size_t>(vocab));
    for (std::size_t t = 0; t < z.size(); ++t) {
      const float u = rows[r][t], c = rows[35 + r][t];
      z[t] = u + 2.5f * (c - u);
      ASSERT_EQ(scores[1].logits[r * z.size() + t], z[t]);
    }
    expect_same(scores[1].rows[r], naive(z, batch[1].request, static_cast<Position>(r)), "guided");
  }
  for (std::size_t r = 0; r < 12; ++r)
    expect_same(scores[2].rows[r], naive(rows[70 + r], batch[2].request, static_cast<Position>(r)), "alone");
}

TEST(ScoreHead, TopTokensAreTheBestInOrder) {
  test::Random random(6);
  std::vector<std::vector<float>> rows = {random_floats(random, 2100, 3.f), random_floats(random, 2100, 3.f)};
  for (std::size_t i = 0; i < 2100; i += 100) rows[0][i] = 3.5f;  // ties across chunks
  ScoreRequest request;
  request.top_tokens = 30;
  HeadFixture head(3);
  const Scores scores = head.run(rows, request);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::vector<TopToken> all;
    for (std::size_t t = 0; t < rows[r].size(); ++t) all.push_back({static_cast<TokenId>(t), rows[r][t]});
    std::sort(all.begin(), all.end(), better);
    for (std::size_t i = 0; i < 30; ++i) {
      EXPECT_EQ(scores.top[r * 30 + i].token, all[i].token);
      EXPECT_EQ(scores.top[r * 30 + i].logit, all[i].logit);
    }
  }
  const Scores few = head.run({{1.f, 2.f, kNan}}, request);
  EXPECT_EQ(few.top[0].token, 1);
  EXPECT_EQ(few.top[1].token, 0);
  EXPECT_EQ(few.top[2].token, kNoToken);
}

TEST(ScoreHead, ThreadsDoNotChangeABit) {
  test::Random random(9);
  std::vector<std::vector<float>> rows;
  for (int r = 0; r < 70; ++r) rows.push_back(random_floats(random, 5000, 6.f));
  for (const ScoreRequest& request : requests()) {
    if (request.top_k == 1 || request.top_p == 0.3) continue;
    const Scores one = HeadFixture(1).run(rows, request), many = HeadFixture(5).run(rows, request);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      EXPECT_EQ(one.rows[r].token, many.rows[r].token);
      for (double RowScore::* field :
           {&RowScore::confidence, &RowScore::log_odds, &RowScore::margin, &RowScore::entropy})
        ASSERT_EQ(std::bit_cast<std::uint64_t>(one.rows[r].*field), std::bit_cast<std::uint64_t>(many.rows[r].*field));
    }
  }
}

TEST(ScoreHead, QueriesAndThePredictionsLogitAreThoseOfTheRow) {
  std::vector<std::vector<float>> rows(3, std::vector<float>(2500));
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t t = 0; t < rows[r].size(); ++t)
      rows[r][t] = static_cast<float>((t * 7919 + r * 104729) % 4001) / 500.f;
  ScoreRequest request;
  request.queries = {{0, 2499}, {0, 0}, {2, 1024}, {2, 1023}, {2, 1024}};
  HeadFixture head(2);
  const Scores scores = head.run(rows, request);
  ASSERT_EQ(scores.queried.size(), request.queries.size());
  for (std::size_t i = 0; i < request.queries.size(); ++i) {
    const LogitQuery& query = request.queries[i];
    EXPECT_EQ(scores.queried[i], rows[static_cast<std::size_t>(query.scored)][static_cast<std::size_t>(query.token)]);
  }
  for (std::size_t r = 0; r < rows.size(); ++r)
    EXPECT_EQ(scores.rows[r].logit, rows[r][static_cast<std::size_t>(scores.rows[r].token)]);
}

}  // namespace
}  // namespace dllm::cpu
