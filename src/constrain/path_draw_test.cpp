#include "constrain/path_draw.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <string>

#include "base/rng.h"
#include "constrain/regex.h"

namespace dllm::constrain {
namespace {

/// 4 is a stop token, 5 has no text.
const std::array<std::string_view, 6> kDrawTokens = {"a", "b", "ab", "ba", "</s>", ""};
constexpr TokenId kDrawStop = 4;
constexpr int kDraws = 20000;

using Text = std::vector<TokenId>;

TokenAutomaton drawn_automaton(const std::string& regex) {
  const auto dfa = compile(**parse_regex(regex));
  return *TokenAutomaton::build(*dfa, kDrawTokens, std::array{kDrawStop});
}

struct Problem {
  TokenAutomaton automaton;
  std::vector<Slot> slots;
  std::vector<std::vector<float>> logits;  ///< by row
  std::int32_t after = 0;
};

Problem problem(const std::string& regex, std::size_t size, std::uint64_t seed) {
  Problem made{drawn_automaton(regex), {}, {}, 0};
  for (std::size_t i = 0; i < size; ++i) {
    made.slots.push_back({Slot::kNone, static_cast<std::int32_t>(i)});
    std::vector<float>& logits = made.logits.emplace_back();
    for (std::uint32_t t = 0; t < kDrawTokens.size(); ++t)
      logits.push_back(
          static_cast<float>(3 * uniform01({seed, 0}, RngPurpose::kOrder, 0, static_cast<std::uint32_t>(i), t)));
  }
  return made;
}

std::optional<Text> drawn(const Problem& problem, const PathDrawer::Rule& rule, std::uint64_t seed) {
  PathFinder finder(problem.automaton);
  std::vector<std::span<const float>> rows(problem.logits.begin(), problem.logits.end());
  return PathDrawer(problem.automaton, finder)
      .draw(problem.slots, rows, problem.after, rule, [&](std::size_t slot, std::uint32_t attempt) {
        return uniform01({seed, 0}, RngPurpose::kToken, 0, static_cast<std::uint32_t>(slot), attempt);
      });
}

std::map<Text, double> frequencies(const Problem& problem, const PathDrawer::Rule& rule) {
  std::map<Text, double> counts;
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    const auto text = drawn(problem, rule, seed);
    EXPECT_TRUE(text.has_value());
    if (text) counts[*text] += 1.0 / kDraws;
  }
  return counts;
}

/// The probabilities of all accepted texts, by enumeration: the definition. -1 for slots without a row.
std::map<Text, double> probabilities(const Problem& problem, double temperature) {
  const std::size_t length = problem.slots.size() + static_cast<std::size_t>(problem.after);
  std::map<Text, double> weights;
  double all = 0;
  Text tokens(length, 0);
  for (std::size_t at = 0; at < length;) {
    std::int32_t state = problem.automaton.start();
    for (std::size_t i = 0; i < length && state != TokenAutomaton::kDead; ++i)
      state = problem.automaton.next(state, tokens[i]);
    if (state != TokenAutomaton::kDead && problem.automaton.accepts(state)) {
      double weight = 1;
      Text text(problem.slots.size(), Slot::kNone);
      bool fits = true;
      for (std::size_t i = 0; i < problem.slots.size(); ++i) {
        const Slot& slot = problem.slots[i];
        fits = fits && (slot.token == Slot::kNone || slot.token == tokens[i]);
        if (slot.row == Slot::kNone) continue;
        text[i] = tokens[i];
        const auto row = static_cast<std::size_t>(slot.row), t = static_cast<std::size_t>(tokens[i]);
        weight *= std::exp(static_cast<double>(problem.logits[row][t]) / temperature);
      }
      if (fits && weights.emplace(text, weight).second) all += weight;
    }
    for (at = 0; at < length && ++tokens[at] == static_cast<TokenId>(kDrawTokens.size()); ++at) tokens[at] = 0;
  }
  for (auto& [text, weight] : weights) weight /= all;
  return weights;
}

void expect_same(const std::map<Text, double>& found, const std::map<Text, double>& expected) {
  for (const auto& [text, share] : found) EXPECT_TRUE(expected.contains(text)) << share;
  for (const auto& [text, p] : expected) {
    const auto one = found.find(text);
    const double share = one == found.end() ? 0 : one->second;
    EXPECT_NEAR(share, p, 5 * std::sqrt(p * (1 - p) / kDraws) + 1.0 / kDraws);
  }
}

TEST(PathDraw, TextsComeAsOftenAsTheyAreProbable) {
  for (const double temperature : {0.3, 1.0, 4.0}) {
    const Problem one = problem("(ab|ba|b){1,3}", 3, 7);
    expect_same(frequencies(one, {.temperature = temperature}), probabilities(one, temperature));
  }
}

TEST(PathDraw, GivenTokensAndTokensAfterwardsCount) {
  Problem one = problem("a*b{2}a?", 4, 3);
  one.slots[1] = {.token = 1, .row = Slot::kNone};
  one.after = 1;
  expect_same(frequencies(one, {.temperature = 1.5}), probabilities(one, 1.5));
}

TEST(PathDraw, AnUnknownPositionTakesAnythingThatCanEnd) {
  Problem one = problem("a(b|ba)b", 3, 5);
  one.slots[1] = {};
  for (const auto& [text, share] : frequencies(one, {.temperature = 2}))
    EXPECT_TRUE(probabilities(one, 2).contains(text)) << share;
}

/// Without the sums over what follows, a text of this language would often have to end where it cannot.
TEST(PathDraw, LittleTemperatureGivesTheBest) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Problem one = problem("(ab|ba|b){1,3}", 4, seed);
    PathFinder finder(one.automaton);
    ClassWeights weights(one.automaton);
    for (const auto& logits : one.logits) weights.add(logits);
    EXPECT_EQ(drawn(one, {.temperature = 1e-5}, seed), finder.best(one.slots, weights, 0)) << seed;
    const PathDrawer::Rule likeliest{5, [](std::span<const double>) { return std::size_t{1}; }};
    EXPECT_EQ(drawn(one, likeliest, seed), drawn(one, likeliest, seed + 1));
  }
}

/// One position: the filters get the tokens that the structure allows, the likeliest first, and what they keep is
/// drawn.
TEST(PathDraw, FiltersKeepTheLikeliestThatAreAllowed) {
  Problem one = problem("a|b|ab|ba", 1, 0);
  const auto share = [](double p) { return static_cast<float>(std::log(p)); };
  one.logits = {{share(0.2), share(0.1), share(0.05), share(0.05), share(0.5), share(0.1)}};  // a half and a fifth of
  const auto kept = [&](std::size_t count) {                                                  // a, b, ab, ba
    const PathDrawer::Rule rule{1, [&](std::span<const double> weights) {
                                  EXPECT_EQ(weights.size(), 4);
                                  constexpr std::array kShares = {1.0, 0.5, 0.25, 0.25};
                                  for (std::size_t i = 0; i < 4; ++i)
                                    EXPECT_NEAR(weights[i] / weights[0], kShares[i], 1e-6);
                                  return count;
                                }};
    std::size_t most = 0;
    for (const auto& [text, frequency] : frequencies(one, rule)) {
      EXPECT_GT(frequency, 0.05);
      most = std::max(most, static_cast<std::size_t>(text[0]) + 1);
    }
    return most;
  };
  for (std::size_t count = 1; count <= 4; ++count) EXPECT_EQ(kept(count), count);
}

TEST(PathDraw, ForbiddenAndDamagedLogits) {
  Problem one = problem("a|b", 1, 1);
  one.logits[0][0] = -INFINITY;
  one.logits[0][5] = NAN;
  EXPECT_EQ(frequencies(one, {.temperature = 1}).size(), 1);
  one.logits[0][1] = NAN;
  EXPECT_EQ(drawn(one, {.temperature = 1}, 1), std::nullopt);
  EXPECT_EQ(drawn(problem("abab", 1, 1), {.temperature = 1}, 1), std::nullopt);
}

}  // namespace
}  // namespace dllm::constrain
