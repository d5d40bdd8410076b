#include "constrain/best_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>

#include "constrain/regex.h"

namespace dllm::constrain {
namespace {

/// A small vocabulary: tokens that overlap, split UTF-8 characters, and cross borders of the grammar. 9 and 10 are stop
/// tokens; 8 has no text.
const std::array<std::string_view, 11> kTokens = {"a",    "b",  "ab", "ba",   "aab",  "\xC3",
                                                  "\xA9", "b1", "",   "</s>", "<end>"};
const std::array<TokenId, 2> kStops = {9, 10};

TokenAutomaton automaton_of(const std::string& regex, std::span<const TokenId> stops = kStops) {
  const auto pattern = parse_regex(regex);
  const auto dfa = compile(**pattern);
  EXPECT_TRUE(dfa.has_value());
  auto result = TokenAutomaton::build(*dfa, kTokens, stops);
  EXPECT_TRUE(result.has_value());
  return *std::move(result);
}

/// Whether tokens spell a match and then only stop: the definition, by the bytes.
bool accepted(const Dfa& dfa, std::span<const TokenId> tokens, std::span<const TokenId> stops) {
  std::string text;
  bool ended = false;
  for (const TokenId t : tokens) {
    const bool stop = std::ranges::count(stops, t) > 0;
    if (!stop && (ended || kTokens[static_cast<std::size_t>(t)].empty())) return false;
    ended = ended || stop;
    if (!stop) text += kTokens[static_cast<std::size_t>(t)];
  }
  return dfa.matches(text);
}

struct Case {
  std::vector<Slot> slots;
  std::vector<std::vector<float>> logits;  ///< by slot
  std::int32_t after = 0;
};

Case random_case(std::mt19937& rng) {
  Case made;
  const std::size_t size = 1 + rng() % 4;
  made.after = static_cast<std::int32_t>(rng() % 3);
  std::int32_t row = 0;
  for (std::size_t i = 0; i < size; ++i) {
    std::vector<float> logits;
    for (std::size_t t = 0; t < kTokens.size(); ++t) logits.push_back(static_cast<float>(rng() % 1000) / 100);
    made.logits.push_back(std::move(logits));
    const auto kind = rng() % 6;
    if (kind == 0)
      made.slots.push_back({static_cast<TokenId>(rng() % kTokens.size()), Slot::kNone});
    else if (kind == 1)
      made.slots.push_back({});
    else
      made.slots.push_back({Slot::kNone, row++});
  }
  return made;
}

/// The best sum over all sequences that are accepted; minus infinity: none is.
double best_by_enumeration(const Dfa& dfa, const Case& one, std::span<const TokenId> stops) {
  const std::size_t length = one.slots.size() + static_cast<std::size_t>(one.after);
  double best = -INFINITY;
  std::vector<TokenId> tokens(length, 0);
  for (;;) {
    bool fits = true;
    double sum = 0;
    for (std::size_t i = 0; i < one.slots.size(); ++i) {
      if (one.slots[i].token != Slot::kNone) fits = fits && one.slots[i].token == tokens[i];
      if (one.slots[i].token == Slot::kNone && one.slots[i].row != Slot::kNone)
        sum += static_cast<double>(one.logits[i][static_cast<std::size_t>(tokens[i])]);
    }
    if (fits && sum > best && accepted(dfa, tokens, stops)) best = sum;
    std::size_t place = 0;
    while (place < length && ++tokens[place] == static_cast<TokenId>(kTokens.size())) tokens[place++] = 0;
    if (place == length) return best;
  }
}

void check_against_enumeration(const char* regex, std::span<const TokenId> stops, int cases, std::mt19937& rng,
                               int& found) {
  const auto dfa = compile(**parse_regex(regex));
  const TokenAutomaton automaton = automaton_of(regex, stops);
  PathFinder finder(automaton);
  for (int i = 0; i < cases; ++i) {
    const Case one = random_case(rng);
    ClassWeights weights(automaton);
    for (std::size_t s = 0; s < one.slots.size(); ++s)
      if (one.slots[s].row != Slot::kNone) weights.add(one.logits[s]);
    const auto path = finder.best(one.slots, weights, one.after);
    const double best = best_by_enumeration(*dfa, one, stops);
    ASSERT_EQ(path.has_value(), std::isfinite(best)) << regex;
    if (!path) continue;
    ++found;
    double sum = 0;
    for (std::size_t s = 0; s < one.slots.size(); ++s) {
      ASSERT_EQ((*path)[s] >= 0, one.slots[s].row != Slot::kNone);
      if ((*path)[s] >= 0) sum += static_cast<double>(one.logits[s][static_cast<std::size_t>((*path)[s])]);
    }
    EXPECT_DOUBLE_EQ(sum, best) << regex;
    // The tokens found are one of the sequences: given, they leave a way to the end.
    Case given = one;
    for (std::size_t s = 0; s < given.slots.size(); ++s)
      if ((*path)[s] >= 0) given.slots[s] = {(*path)[s], Slot::kNone};
    EXPECT_TRUE(std::isfinite(best_by_enumeration(*dfa, given, stops))) << regex;
  }
}

TEST(BestPath, EqualsEnumeration) {
  std::mt19937 rng(1);
  int found = 0;
  for (const char* regex : {"(ab)*", "a+b?", "[ab]*1", "(aab|ba)+", "a*é?b*", ".{2,4}", "[^a]+", "aaab"})
    check_against_enumeration(regex, kStops, 40, rng, found);
  EXPECT_GT(found, 100);
}

TEST(BestPath, EqualsEnumerationWithoutStopTokens) {
  std::mt19937 rng(2);
  int found = 0;
  for (const char* regex : {"(ab)*", "[ab]*1", ".{3,5}"}) check_against_enumeration(regex, {}, 40, rng, found);
  EXPECT_GT(found, 20);
}

TEST(BestPath, AnySubsetOfTheBestPathStaysCompletable) {
  std::mt19937 rng(4);
  for (const char* regex : {"(ab|ba){2,6}", "(aab)*b1?", "(é|ab)+"}) {
    const TokenAutomaton automaton = automaton_of(regex);
    PathFinder finder(automaton);
    for (int i = 0; i < 60; ++i) {
      std::vector<Slot> slots(8);
      // New logits in every pass, and a random subset of the path is committed: no order may lead into a dead end.
      while (std::ranges::any_of(slots, [](const Slot& slot) { return slot.token == Slot::kNone; })) {
        ClassWeights weights(automaton);
        std::int32_t row = 0;
        for (Slot& slot : slots) {
          if (slot.token != Slot::kNone) continue;
          std::vector<float> logits;
          for (std::size_t t = 0; t < kTokens.size(); ++t) logits.push_back(static_cast<float>(rng() % 1000));
          weights.add(logits);
          slot.row = row++;
        }
        const auto path = finder.best(slots, weights, 0);
        ASSERT_TRUE(path.has_value()) << regex;
        for (std::size_t s = 0; s < slots.size(); ++s)
          if ((*path)[s] >= 0 && rng() % 3 == 0) slots[s] = {(*path)[s], Slot::kNone};
      }
    }
  }
}

TEST(BestPath, TiesGoToTheLowerToken) {
  const TokenAutomaton automaton = automaton_of("[ab]");
  ClassWeights weights(automaton);
  weights.add(std::vector<float>(kTokens.size(), 1.0F));
  const std::vector<Slot> slots = {{Slot::kNone, 0}};
  const auto path = PathFinder(automaton).best(slots, weights, 0);
  ASSERT_TRUE(path.has_value());
  EXPECT_EQ(path->front(), 0);
}

TEST(BestPath, ALogitThatIsNoNumberIsNoWay) {
  const TokenAutomaton automaton = automaton_of("a");
  ClassWeights weights(automaton);
  weights.add(std::vector<float>(kTokens.size(), NAN));
  const std::vector<Slot> slots = {{Slot::kNone, 0}};
  EXPECT_FALSE(PathFinder(automaton).best(slots, weights, 0).has_value());
}

TEST(BestPath, FewestTokens) {
  for (const auto& [regex, tokens] : {std::pair("", 0), std::pair("a", 1), std::pair("aab", 1), std::pair("aabab", 2),
                                      std::pair("é", 2), std::pair("a{7}b?", 6)}) {
    const TokenAutomaton automaton = automaton_of(regex);
    PathFinder finder(automaton);
    EXPECT_EQ(finder.fewest_tokens(100), tokens) << regex;
    EXPECT_EQ(finder.fewest_tokens(100), tokens) << regex;
    EXPECT_EQ(finder.fits(tokens), true) << regex;
    EXPECT_EQ(finder.fits(tokens + 3), true) << regex;
    if (tokens == 0) continue;
    EXPECT_EQ(finder.fewest_tokens(tokens - 1), std::nullopt) << regex;
    EXPECT_FALSE(finder.fits(tokens - 1)) << regex;
  }
  const TokenAutomaton never = automaton_of("日");
  EXPECT_EQ(PathFinder(never).fewest_tokens(1000), std::nullopt);
  const TokenAutomaton exact = automaton_of("aab", {});
  EXPECT_TRUE(PathFinder(exact).fits(1));
  EXPECT_TRUE(PathFinder(exact).fits(3));
  EXPECT_FALSE(PathFinder(exact).fits(4));
}

/// The definition of next(): one byte after another.
TEST(TokenAutomaton, TokensAreTheirBytes) {
  for (const char* regex : {"(ab)*", "[ab]{1,5}1?", "é+|b"}) {
    const auto dfa = compile(**parse_regex(regex));
    const TokenAutomaton automaton = automaton_of(regex);
    for (std::int32_t s = 0; s < dfa->states; ++s)
      for (std::size_t t = 0; t < 9; ++t) {
        std::int32_t state = kTokens[t].empty() ? Dfa::kDead : s;
        for (const char byte : kTokens[t])
          if (state != Dfa::kDead) state = dfa->step(state, static_cast<std::uint8_t>(byte));
        EXPECT_EQ(automaton.next(s, static_cast<TokenId>(t)), state) << regex << " " << s << " " << t;
      }
    EXPECT_EQ(automaton.next(0, -1), TokenAutomaton::kDead);
    EXPECT_EQ(automaton.next(0, 1000), TokenAutomaton::kDead);
  }
}

/// The definition, by counts.
std::vector<std::uint8_t> endings_after(const TokenAutomaton& automaton, std::int32_t count) {
  std::vector<std::uint8_t> can;
  for (std::int32_t s = 0; s < automaton.states(); ++s) can.push_back(automaton.accepts(s) ? 1 : 0);
  for (std::int32_t i = 0; i < count; ++i) {
    std::vector<std::uint8_t> longer(can.size(), 0);
    for (std::int32_t s = 0; s < automaton.states(); ++s)
      for (const std::int32_t to : automaton.successors(s))
        if (can[static_cast<std::size_t>(to)] != 0) longer[static_cast<std::size_t>(s)] = 1;
    can = longer;
  }
  return can;
}

TEST(BestPath, EndingsAreThoseOfEveryCountWithAndWithoutStops) {
  for (const char* regex : {"a", "(ab|ba)*", "aab(a|b)b", "(ab){3}|a", "a*b", "(aab){2}", "b1(ab)*"})
    for (const std::span<const TokenId> stops : {std::span<const TokenId>(kStops), std::span<const TokenId>()}) {
      const TokenAutomaton automaton = automaton_of(regex, stops);
      PathFinder finder(automaton);
      for (std::int32_t count = 0; count < 9; ++count) {
        const std::vector<std::uint8_t> expected = endings_after(automaton, count);
        for (std::int32_t s = 0; s < automaton.states(); ++s)
          EXPECT_EQ(finder.can_end(s, count), expected[static_cast<std::size_t>(s)] != 0)
              << regex << ", " << stops.size() << " stops, state " << s << ", " << count;
      }
    }
}

}  // namespace
}  // namespace dllm::constrain
