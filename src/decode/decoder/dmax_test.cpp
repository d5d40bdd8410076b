// dmax: which tokens it commits, how it reads them, and when a block ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "decode/testing/make_method.h"
#include "decode/testing/random_scores.h"
#include "decode/testing/run_method.h"

namespace dllm {
namespace {

constexpr TokenId kDmaxMask = 11;

std::vector<test::LogitRow> predictions(const std::vector<std::pair<TokenId, double>>& rows) {
  std::vector<test::LogitRow> result;
  for (const auto& [token, c] : rows) result.push_back(test::prediction(token, c));
  return result;
}

TEST(Dmax, CommitsFromTheLeftAndPredictsItsTokensAgain) {
  const auto decoder = test::decoder_of("dmax", {{"threshold", 0.8}});
  Canvas canvas({}, 5, kDmaxMask);
  const auto step = [&](const std::vector<std::pair<TokenId, double>>& rows, std::int32_t at) {
    const std::vector<Edit> edits = test::decode_rows(*decoder, canvas, predictions(rows), at, 5);
    for (const Edit& edit : edits) canvas.apply(edit);
    return edits;
  };
  EXPECT_EQ(step({{1, 0.85}, {2, 0.95}, {3, 0.7}, {4, 0.95}, {5, 0.95}}, 0).size(), 2u) << "up to the first in doubt";
  const DecodeContext context{canvas, {0, 5}, 1, 5, 1, {1, 0}};
  const std::vector<SoftToken> soft = decoder->soft_tokens(context);
  ASSERT_EQ(soft.size(), 2u);
  EXPECT_EQ(soft[0].position, 0);
  ASSERT_EQ(soft[0].tokens.size(), 2u);
  EXPECT_EQ(soft[0].tokens[0].token, 1);
  EXPECT_NEAR(static_cast<double>(soft[0].tokens[0].weight), 0.85, 1e-6);
  EXPECT_EQ(soft[0].tokens[1].token, kDmaxMask);
  EXPECT_NEAR(static_cast<double>(soft[0].tokens[1].weight), 0.15, 1e-6);

  const std::vector<Edit> second = step({{7, 0.55}, {2, 0.9}, {3, 0.6}, {4, 0.9}, {5, 0.9}}, 1);
  ASSERT_EQ(second.size(), 2u) << "another first token, and one mask at least";
  EXPECT_EQ(second[0].kind, EditKind::kRevise);
  EXPECT_EQ(canvas.token(0), 7);
  EXPECT_EQ(canvas.token(2), 3);
  EXPECT_TRUE(canvas.masked(3));
  step({{7, 0.95}, {2, 0.95}, {3, 0.85}, {4, 0.95}, {5, 0.95}}, 2);
  EXPECT_EQ(canvas.masked_count(), 0);
  EXPECT_TRUE(decoder->holds_window(context)) << "its last masks have just become tokens";
  step({{7, 0.95}, {2, 0.95}, {3, 0.85}, {4, 0.95}, {5, 0.95}}, 3);
  EXPECT_FALSE(decoder->holds_window(context)) << "nothing changed";
}

TEST(Dmax, MixesSeveralTokensAndTheMaskByTheRest) {
  const auto decoder = test::decoder_of("dmax", {{"mixed_tokens", 2}});
  Canvas canvas({}, 1, kDmaxMask);
  test::LogitRow row(12, -50.F);
  row[3] = static_cast<float>(std::log(0.6)), row[5] = static_cast<float>(std::log(0.3));
  row[7] = static_cast<float>(std::log(0.1));
  for (const Edit& edit : test::decode_rows(*decoder, canvas, {row}, 0, 1)) canvas.apply(edit);
  const auto soft = decoder->soft_tokens({canvas, {0, 1}, 1, 1, 1, {1, 0}});
  ASSERT_EQ(soft.size(), 1u);
  ASSERT_EQ(soft[0].tokens.size(), 3u);
  EXPECT_EQ(soft[0].tokens[1].token, 5);
  EXPECT_NEAR(static_cast<double>(soft[0].tokens[1].weight), 0.3, 1e-6);
  EXPECT_NEAR(static_cast<double>(soft[0].tokens[2].weight), 0.1, 1e-6);
}

/// In the loop: rows of committed positions of the window carry their mixture, which no later pass finds in the cache.
TEST(Dmax, RowsAreReadAsMixturesAndNotKept) {
  for (const char* cache : {"none", "prefix", "dual", "block-causal"}) {
    SCOPED_TRACE(cache);
    const bool causal = std::string_view(cache) == "block-causal";
    test::FakeBackend backend(test::masked_desc(causal ? 8 : 0));
    test::MethodRun run{.cache = cache, .decoder = "dmax", .config = {{"threshold", 0.6}, {"most_passes", 6}}};
    if (causal) run.grid.origin = BlockOrigin::kAbsolute;
    std::size_t mixed = 0;
    std::vector<Position> before;  // read as mixtures in the last pass
    backend.observe = [&](const SequenceStep& step) {
      std::vector<Position> now;
      for (const RowMixture& mixture : step.plan.mixtures) {
        EXPECT_TRUE(mixture.instead);
        const PlanRow& row = step.plan.rows[static_cast<std::size_t>(mixture.row)];
        EXPECT_NE(row.token, 99);
        now.push_back(row.position);
      }
      mixed += now.size();
      for (const Position p : before)
        EXPECT_TRUE(std::ranges::any_of(step.plan.rows, [&](const PlanRow& row) { return row.position == p; }))
            << "a later pass computes it again";
      before = now;
    };
    EXPECT_TRUE(test::run_method(backend, run).finished);
    EXPECT_GT(mixed, 10u);
    run.config = {{"hard_tokens", true}};
    mixed = 0;
    before.clear();
    EXPECT_TRUE(test::run_method(backend, run).finished);
    EXPECT_EQ(mixed, 0u);
    // A block whose last pass changes nothing: its tokens are as they were, and its rows are not.
    backend.tamper = [](RowScore& score) { score.token = score.position + 1, score.confidence = 0.85; };
    run.config = {{"threshold", 0.6}};
    before.clear();
    EXPECT_TRUE(test::run_method(backend, run).finished);
    EXPECT_GT(mixed, 10u);
  }
}

}  // namespace
}  // namespace dllm
