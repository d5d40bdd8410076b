// Decoders that revise tokens within a language: what they are shown, and which of their edits are kept.
#include "decode/loop/constraint_guide.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <string>
#include <string_view>

#include "constrain/regex.h"
#include "decode/testing/random_scores.h"

namespace dllm {
namespace {

const std::array<std::string_view, 8> kTokens = {"a", "b", "c", "ab", "d", "", "", ""};
constexpr TokenId kStop = 6, kMask = 7;
constexpr Position kAnswer = 2;  ///< begins after a prompt of two tokens

std::shared_ptr<const constrain::TokenAutomaton> automaton(const std::string& regex) {
  const auto pattern = constrain::parse_regex(regex);
  const auto dfa = constrain::compile(**pattern);
  const std::array<TokenId, 1> stops = {kStop};
  return std::make_shared<const constrain::TokenAutomaton>(*constrain::TokenAutomaton::build(*dfa, kTokens, stops));
}

/// One pass over all positions of an answer.
struct GuidedPass {
  Canvas canvas;
  DenoisePass pass{};
  Scores scores{};
  std::vector<Candidate> candidates{};

  /// `given`: tokens of the answer; the mask: a mask. `rows`: logits by position of the answer.
  GuidedPass(const std::vector<TokenId>& given, const std::vector<test::LogitRow>& rows)
      : canvas({0, 0}, static_cast<Position>(given.size()), kMask) {
    for (std::size_t i = 0; i < given.size(); ++i) {
      const Position p = kAnswer + static_cast<Position>(i);
      if (given[i] != kMask) canvas.apply({p, given[i], EditKind::kCommit, 1});
      pass.wanted.push_back(p);
      pass.score_of_wanted.push_back(static_cast<std::int32_t>(i));
      candidates.push_back(test::reduce(p, rows[i], kMask));
      scores.rows.emplace_back();
      scores.logits.insert(scores.logits.end(), rows[i].begin(), rows[i].end());
    }
    pass.decided = pass.wanted.size();
  }
  std::vector<TokenId> tokens() const {
    std::vector<TokenId> result;
    for (const Candidate& one : candidates) result.push_back(one.token);
    return result;
  }
};

/// Logits in which these tokens are the likeliest, in this order.
test::LogitRow prefers(std::initializer_list<TokenId> tokens) {
  test::LogitRow row(kTokens.size(), -8.F);
  float best = 4;
  for (const TokenId t : tokens) row[static_cast<std::size_t>(t)] = best--;
  return row;
}

Edit revise(Position p, TokenId token, double confidence) { return {p, token, EditKind::kRevise, confidence}; }

TEST(ConstraintGuide, ReviewedTokensAreShownTheBestAnswerTogether) {
  ConstraintGuide guide({automaton("(aa|bb)c?"), 3});
  // Alone, each of the first two would be a b; the mask after them is a c in both cases.
  GuidedPass one({0, 0, kMask}, {prefers({1, 0}), prefers({2, 1, 0}), prefers({4, 2})});
  ASSERT_TRUE(guide.apply(one.canvas, one.pass, one.scores, one.candidates));
  EXPECT_EQ(one.tokens(), (std::vector<TokenId>{1, 1, 2})) << "d and c at the second are not accepted";
  EXPECT_LT(one.candidates[1].margin, 0) << "it is not the likeliest";
  // Where the model prefers what is there, it stays.
  GuidedPass same({0, 0, kMask}, {prefers({0, 1}), prefers({0, 1}), prefers({2})});
  ASSERT_TRUE(guide.apply(same.canvas, same.pass, same.scores, same.candidates));
  EXPECT_EQ(same.tokens(), (std::vector<TokenId>{0, 0, 2}));
}

TEST(ConstraintGuide, RevisionsThatDoNotFitAreLeftOut) {
  ConstraintGuide guide({automaton("(aa|bb)c?"), 3});
  GuidedPass one({0, 0, kMask}, {prefers({1, 0}), prefers({1, 0}), prefers({2})});
  ASSERT_TRUE(guide.apply(one.canvas, one.pass, one.scores, one.candidates));
  const auto kept = [&](std::vector<Edit> edits) {
    std::string result;
    for (const Edit& edit : guide.keep(one.canvas, std::move(edits)))
      result += std::to_string(edit.position) + (edit.kind == EditKind::kRevise ? "r" : "x") + ' ';
    return result;
  };
  const Edit remask{3, kMask, EditKind::kRemask, 0.1}, commit{4, 2, EditKind::kCommit, 0.2};
  EXPECT_EQ(kept({revise(2, 1, 0.9), revise(3, 1, 0.8)}), "2r 3r ") << "together they fit";
  EXPECT_EQ(kept({revise(2, 1, 0.9), commit}), "4x ") << "alone it does not";
  EXPECT_EQ(kept({revise(2, 1, 0.9), remask}), "2r 3x ") << "the other becomes free";
  EXPECT_EQ(kept({revise(2, 1, 0.9), revise(3, 2, 0.8)}), "") << "neither does";
  EXPECT_EQ(kept({commit, remask}), "4x 3x ") << "these always do";
}

TEST(ConstraintGuide, TheLeastConfidentRevisionIsLeftOutFirst) {
  ConstraintGuide guide({automaton("(a|b)(a|b)(c|d)"), 3});
  GuidedPass one({0, 0, 2}, {prefers({1}), prefers({1}), prefers({4})});
  ASSERT_TRUE(guide.apply(one.canvas, one.pass, one.scores, one.candidates));
  const auto kept = guide.keep(one.canvas, {revise(2, 1, 0.9), revise(3, 4, 0.3), revise(4, 4, 0.8)});
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].position, 2);
  EXPECT_EQ(kept[1].position, 4) << "only the second is impossible, and it is the least confident one";
}

// A mask's token of this pass may be committed beside any revision that is kept.
TEST(ConstraintGuide, WhatIsKeptFitsTheMasksOfThePass) {
  ConstraintGuide guide({automaton("a(c|d)|b(c|ab)"), 2});
  GuidedPass one({0, kMask}, {prefers({1}), prefers({4, 2})});
  ASSERT_TRUE(guide.apply(one.canvas, one.pass, one.scores, one.candidates));
  EXPECT_EQ(one.tokens(), (std::vector<TokenId>{0, 4})) << "with a d after it, a b is not accepted";
  EXPECT_TRUE(guide.keep(one.canvas, {revise(2, 1, 0.9)}).empty()) << "the d might be committed too";
}

// Whatever a decoder does with what it is shown, the answer can be completed.
TEST(ConstraintGuide, AnySubsetOfItsEditsCanBeCompleted) {
  const auto language = automaton("(aab|bba|abc|cab|abab)d*|(ab|cd)*c");
  std::mt19937_64 random(5);
  std::size_t revised = 0, dropped = 0;
  for (int round = 0; round < 300; ++round) {
    constexpr std::size_t kLength = 6;
    ConstraintGuide guide({language, static_cast<Position>(kLength)});
    Canvas canvas({0, 0}, kLength, kMask);
    for (int step = 0; step < 8; ++step) {
      const auto rows = test::random_rows(random, kLength, kTokens.size());
      std::vector<TokenId> now;
      for (std::size_t i = 0; i < kLength; ++i) {
        const Position p = kAnswer + static_cast<Position>(i);
        now.push_back(canvas.masked(p) ? kMask : canvas.token(p));
      }
      GuidedPass pass(now, rows);
      ASSERT_TRUE(guide.apply(canvas, pass.pass, pass.scores, pass.candidates)) << round << ' ' << step;
      std::vector<Edit> edits;
      for (const Candidate& one : pass.candidates) {
        const bool masked = canvas.masked(one.position);
        const auto choice = random() % 4;
        if (masked && choice < 2) edits.push_back(commit(one));
        if (!masked && choice == 0) edits.push_back({one.position, kMask, EditKind::kRemask, 0});
        if (!masked && choice == 1 && one.token != canvas.token(one.position))
          edits.push_back(revise(one.position, one.token, one.confidence));
      }
      const std::vector<Edit> kept = guide.keep(canvas, edits);
      dropped += edits.size() - kept.size();
      for (const Edit& edit : kept) {
        revised += edit.kind == EditKind::kRevise ? 1 : 0;
        canvas.apply(edit);
      }
    }
  }
  EXPECT_GT(revised, 300u);
  EXPECT_GT(dropped, 50u);
}

}  // namespace
}  // namespace dllm
