// Each decoder against hand-checked vectors and against its own definition.
#include "decode/decoder/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "decode/testing/make_method.h"

namespace dllm {
namespace {

constexpr TokenId kMask = 99;

std::vector<Candidate> candidates_of(const std::vector<double>& confidences) {
  std::vector<Candidate> result;
  for (std::size_t i = 0; i < confidences.size(); ++i) {
    Candidate c;
    c.position = static_cast<Position>(i);
    c.token = static_cast<TokenId>(i + 1);
    c.confidence = confidences[i];
    c.log_odds = std::log(confidences[i] / (1 - confidences[i]));
    c.margin = confidences[i] / 2;
    c.entropy = 1 - confidences[i];
    result.push_back(c);
  }
  return result;
}

/// One decode over an all-masked window of as many positions as there are confidences.
std::vector<Position> committed(Decoder& decoder, const std::vector<double>& confidences, std::int32_t step = 0) {
  const auto n = static_cast<Position>(confidences.size());
  const Canvas canvas({}, n, kMask);
  const DecodeContext context{canvas, {0, n}, step, n, static_cast<std::uint32_t>(step), {1, 0}};
  if (decoder.wanted(context).empty()) return {};
  std::vector<Position> result;
  const auto options = candidates_of(confidences);
  for (const Edit& edit : decoder.decode(context, options)) {
    EXPECT_EQ(edit.token, edit.position + 1);
    result.push_back(edit.position);
  }
  std::sort(result.begin(), result.end());
  return result;
}

using P = std::vector<Position>;

std::unique_ptr<Decoder> make(const std::string& name, const OptionMap& options, Position length = 0,
                              bool compat = false) {
  return test::decoder_of(name, options, length, compat);
}

TEST(TransferSchedule, SpreadsTheRemainderFirst) {
  EXPECT_EQ(transfer_schedule(32, 5), (std::vector<std::int32_t>{7, 7, 6, 6, 6}));
  EXPECT_EQ(transfer_schedule(3, 8), (std::vector<std::int32_t>{1, 1, 1, 0, 0, 0, 0, 0}));
}

TEST(Factor, ReferenceVectors) {
  const auto sane = [](const std::vector<double>& c) { return committed(*make("factor", {{"factor", 1.0}}), c); };
  const auto upstream = [](const std::vector<double>& c) {
    return committed(*make("factor", {{"factor", 1.0}}, 0, /*compat=*/true), c);
  };
  EXPECT_EQ(sane({.95, .9, .6, .3}), (P{0, 1}));
  EXPECT_EQ(upstream({.95, .9, .6, .3}), (P{0, 1}));
  EXPECT_EQ(upstream({.95, .9, .85, .3}), (P{0, 1, 2, 3}));
  EXPECT_EQ(sane({.95, .9, .85, .3}), (P{0, 1, 2}));
  EXPECT_EQ(upstream({.2, .1}), (P{0, 1}));
  EXPECT_EQ(sane({.2, .1}), (P{0}));
  EXPECT_EQ(upstream({.2, .1, .05}), (P{0}));
  EXPECT_EQ(sane({.99, .99, .99}), (P{0, 1, 2}));
}

TEST(Threshold, CommitsTheBestAndItsTies) {
  EXPECT_EQ(committed(*make("threshold", {{"threshold", .9}}), {.5, .499995, .3}), (P{0, 1}));
  EXPECT_EQ(committed(*make("threshold", {{"threshold", .9}}), {.5, .95, .9, .899}), (P{1, 2}));
  EXPECT_EQ(committed(*make("threshold", {{"threshold", 1.1}}), {.5, .9, .2}), (P{1}));  // tau > 1: one per step
}

TEST(FixedSteps, CommitsTheScheduleByConfidence) {
  auto decoder = make("low-confidence", {{"steps", 2}}, 5);
  EXPECT_EQ(committed(*decoder, {.1, .5, .4, .9, .2}, 0), (P{1, 2, 3}));
  EXPECT_EQ(committed(*decoder, {.1, .5, .4, .9, .2}, 1), (P{1, 3}));
  EXPECT_EQ(committed(*decoder, {.1, .5, .4, .9, .2}, 2), (P{3})) << "remaining positions are committed one by one";
}

TEST(FixedSteps, TiesGoToTheLowerPosition) {
  EXPECT_EQ(committed(*make("low-confidence", {{"steps", 4}}, 4), {.3, .3, .3, .3}), (P{0}));
}

TEST(FixedSteps, RandomRankingIgnoresConfidenceAndDependsOnTheStep) {
  auto decoder = make("random", {{"steps", 8}}, 8);
  std::vector<P> seen;
  for (int step = 0; step < 8; ++step) seen.push_back(committed(*decoder, std::vector<double>(8, .5), step));
  EXPECT_GT(std::set<P>(seen.begin(), seen.end()).size(), 2u);
}

TEST(Decoders, IneligibleCandidatesAreNeverCommitted) {
  for (const std::string& name : method_names(decoders())) {
    auto decoder = make(name, test::fitting(decoders(), name, {{"steps", 1}}), 3);
    const Canvas canvas({}, 3, kMask);
    const DecodeContext context{canvas, {0, 3}, 0, 3, 0, {1, 0}};
    ASSERT_EQ(decoder->wanted(context).size(), 3u) << name;
    auto options = candidates_of({.9, .95, .99});
    options[1].eligible = false;
    // The logits that the decoder asked for beyond the reductions have no effect.
    const auto queries = decoder->queries(context);
    const std::vector<float> logits(queries.size(), -9.f);
    for (std::size_t i = 0, next = 0; i < options.size(); ++i) {
      const std::size_t first = next;
      while (next < queries.size() && queries[next].position == options[i].position) ++next;
      options[i].queried = std::span(logits).subspan(first, next - first);
    }
    for (const Edit& edit : decoder->decode(context, options)) EXPECT_NE(edit.position, 1) << name;
  }
}

/// Commits per step of a Dream schedule over `masks` positions.
std::vector<int> dream_schedule(int masks, int steps, bool compat) {
  auto decoder = make("entropy", {{"steps", steps}, {"eps", 1e-3}}, masks, compat);
  Canvas canvas({}, masks, kMask);
  std::vector<int> commits;
  for (int step = 0; step < steps; ++step) {
    const DecodeContext context{canvas, {0, masks}, step, masks, static_cast<std::uint32_t>(step), {1, 0}};
    std::vector<Candidate> options;
    for (Position p : decoder->wanted(context)) {
      Candidate c;
      c.position = p;
      c.token = 1;
      options.push_back(c);
    }
    const auto edits = options.empty() ? std::vector<Edit>{} : decoder->decode(context, options);
    for (const Edit& edit : edits) canvas.apply(edit);
    commits.push_back(static_cast<int>(edits.size()));
  }
  EXPECT_EQ(canvas.masked_count(), 0);
  return commits;
}

TEST(Timestep, ReferenceSchedules) {
  EXPECT_EQ(dream_schedule(8, 4, false), (std::vector<int>{1, 2, 2, 3}));
  for (bool compat : {false, true}) {
    const auto commits = dream_schedule(512, 512, compat);
    EXPECT_EQ(std::count(commits.begin(), commits.end(), 0), 1);
    EXPECT_EQ(commits.back(), 2);
  }
}

TEST(Timestep, EmptyStepsNeedNoForwardUnlessCompat) {
  const Canvas canvas({}, 4, kMask);
  const DecodeContext context{canvas, {0, 4}, 0, 4, 0, {1, 0}};
  EXPECT_TRUE(make("entropy", {{"steps", 64}}, 4)->wanted(context).empty());
  EXPECT_EQ(make("entropy", {{"steps", 64}}, 4, true)->wanted(context).size(), 4u);
}

TEST(Timestep, UnderCompatMasksStayIfTheyWerePredicted) {
  const Canvas canvas({}, 2, kMask);
  auto decoder = make("maskgit-plus", {{"steps", 1}}, 2, true);
  const DecodeContext context{canvas, {0, 2}, 0, 2, 0, {1, 0}};
  EXPECT_EQ(decoder->wanted(context).size(), 2u);
  const std::vector<Candidate> candidates = {{.position = 0, .token = kMask, .confidence = 0.9},
                                             {.position = 1, .token = 3, .confidence = 0.5}};
  const std::vector<Edit> edits = decoder->decode(context, candidates);
  ASSERT_EQ(edits.size(), 2u);
  for (const Edit& edit : edits) EXPECT_EQ(edit.kind == EditKind::kLeave, edit.position == 0);
  EXPECT_TRUE(decoder->keeps_schedule()) << "a place may be wasted";
}

TEST(Timestep, RanksByItsOwnMeasure) {
  const Canvas canvas({}, 3, kMask);
  const DecodeContext context{canvas, {0, 3}, 0, 3, 0, {1, 0}};
  const auto first = [&](const char* name) {
    auto decoder = make(name, {{"steps", 2}}, 3);
    decoder->wanted(context);
    std::vector<Candidate> options(3);
    options[0] = {.position = 0, .token = 1, .confidence = .6, .margin = .2, .entropy = .1};
    options[1] = {.position = 1, .token = 1, .confidence = .5, .margin = .4, .entropy = .2};
    options[2] = {.position = 2, .token = 1, .confidence = .1, .margin = .1, .entropy = .9};
    return decoder->decode(context, options).at(0).position;
  };
  EXPECT_EQ(first("maskgit-plus"), 0);
  EXPECT_EQ(first("topk-margin"), 1);
  EXPECT_EQ(first("entropy"), 0);
}

TEST(Timestep, OriginDecidesTheExpectedShare) {
  const Position n = 4000;
  auto decoder = make("origin", {{"steps", 4}, {"eps", 1e-3}}, n);
  const Canvas canvas({}, n, kMask);
  const DecodeContext context{canvas, {0, n}, 1, n, 1, {5, 0}};
  // Step 1: t = .75025, s = .5005, so 1 - s/t = .3329; standard deviation of the count is 30.
  EXPECT_NEAR(static_cast<double>(decoder->wanted(context).size()), .3329 * n, 150);
}

TEST(Registry, UnknownNamesListTheKnownOnes) {
  const auto decoder = test::make_decoder({"treshold"}, {});
  ASSERT_FALSE(decoder);
  EXPECT_EQ(decoder.error().code, ErrorCode::kUsage);
  EXPECT_NE(decoder.error().message().find("threshold"), std::string::npos);
  EXPECT_FALSE(test::make_window({"x"}, {}));
  EXPECT_FALSE(test::make_cache_policy({"x"}));
}

}  // namespace
}  // namespace dllm
