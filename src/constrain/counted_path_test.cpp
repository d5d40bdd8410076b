#include "constrain/counted_path.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/rng.h"
#include "constrain/dfa.h"
#include "constrain/json_schema.h"
#include "constrain/path_draw.h"
#include "constrain/pattern.h"
#include "constrain/testing/schema_dfa.h"

namespace dllm::constrain {
namespace {

using test::schema_dfa;

/// Tokens that count several characters, half of one, and the end of one text with the beginning of another.
// The longest first, so that ways that count more are found before shorter ones.
const std::array<std::string_view, 12> kCountTokens = {"<",    ">",    "bab", "ab",   "a",    "b",
                                                       "\xC3", "\xA9", "b>",  "a><a", "</s>", ""};
constexpr TokenId kCountStop = 10;

/// "<", up to three characters, ">", twice: once with up to `second`.
PatternPtr two_texts(std::int32_t second) {
  CharSet chars('a', 'b');
  chars.add(0xE9, 0xE9);
  const PatternPtr one = one_of(chars);
  return sequence({literal("<"), counted(one, 3), literal("><"), counted(one, second), literal(">")});
}

TokenAutomaton tokens_of(const Dfa& dfa) { return *TokenAutomaton::build(dfa, kCountTokens, std::array{kCountStop}); }

std::string text_of(std::span<const TokenId> tokens) {
  std::string text;
  for (const TokenId t : tokens)
    if (t != kCountStop) text += kCountTokens[static_cast<std::size_t>(t)];
  return text;
}

/// Calls `call` with all sequences of so many tokens, in which only stops follow a stop.
template <class F>
void each_sequence(std::size_t size, F call) {
  std::vector<TokenId> tokens(size, 0);
  for (std::size_t at = 0; at < size;) {
    bool ended = false, fits = true;
    for (const TokenId t : tokens) {
      fits = fits && (t == kCountStop || (!ended && !kCountTokens[static_cast<std::size_t>(t)].empty()));
      ended = ended || t == kCountStop;
    }
    if (fits) call(tokens);
    for (at = 0; at < size && ++tokens[at] == static_cast<TokenId>(kCountTokens.size()); ++at) tokens[at] = 0;
  }
}

TEST(Counted, SequencesAreThoseOfTheRepeatedPart) {
  for (const std::int32_t second : {1, 3, 5}) {
    const PatternPtr pattern = two_texts(second);
    const Dfa dfa = *compile(*pattern);
    ASSERT_FALSE(dfa.most.empty());
    const TokenAutomaton automaton = tokens_of(dfa);
    int accepted = 0;
    each_sequence(5, [&](const std::vector<TokenId>& tokens) {
      const std::string text = text_of(tokens);
      // The definition: characters between the brackets.
      const std::size_t middle = text.find("><");
      bool wanted = text.starts_with('<') && text.ends_with('>') && middle != text.npos &&
                    text.find("><", middle + 2) == text.npos;
      if (wanted) {
        const auto is_text = [](std::string part, std::size_t most) {
          std::size_t count = 0;
          for (std::size_t i = 0; i < part.size(); ++i, ++count) {
            if (part[i] == 'a' || part[i] == 'b') continue;
            if (part.substr(i, 2) != "\xC3\xA9") return false;
            ++i;
          }
          return count <= most;
        };
        wanted = is_text(text.substr(1, middle - 1), 3) &&
                 is_text(text.substr(middle + 2, text.size() - middle - 3), static_cast<std::size_t>(second));
      }
      EXPECT_EQ(dfa.matches(text), wanted) << text;
      std::int32_t state = automaton.start(), count = 0;
      for (const TokenId t : tokens) {
        const TokenAutomaton::Move* move = state == TokenAutomaton::kDead ? nullptr : automaton.move(state, t);
        if (move != nullptr) count = automaton.count_after(state, *move, count);
        state = move == nullptr || count == TokenAutomaton::kTooMany ? TokenAutomaton::kDead : move->to;
      }
      const bool followed = state != TokenAutomaton::kDead && automaton.accepts(state);
      EXPECT_EQ(followed, wanted) << text;
      accepted += wanted ? 1 : 0;
    });
    EXPECT_GT(accepted, 20);
  }
}

/// Logits that prefer letters, so that the best way of all is often too long.
std::vector<std::vector<float>> lettered_logits(std::size_t rows, std::uint64_t seed) {
  std::vector<std::vector<float>> all(rows);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::uint32_t t = 0; t < kCountTokens.size(); ++t)
      all[i].push_back(
          static_cast<float>(4 * uniform01({seed, 0}, RngPurpose::kOrder, 0, static_cast<std::uint32_t>(i), t) +
                             (t >= 2 && t <= 5 ? 2 : 0)));
  return all;
}

TEST(Counted, TheBestWayIsTheBestThatKeepsToTheBounds) {
  int too_long = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Dfa dfa = *compile(*two_texts(static_cast<std::int32_t>(seed % 4) + 1));
    const TokenAutomaton automaton = tokens_of(dfa);
    std::vector<Slot> slots;
    const std::size_t size = 4 + seed % 2;
    for (std::size_t i = 0; i < size; ++i) slots.push_back({.row = static_cast<std::int32_t>(i)});
    if (seed % 3 == 1) slots[1] = {.token = 3};
    if (seed % 5 == 1) slots[2] = {};
    const auto logits = lettered_logits(size, seed);
    ClassWeights weights(automaton);
    for (const auto& row : logits) weights.add(row);
    const auto sum = [&](std::span<const TokenId> tokens) {
      double all = 0;
      for (std::size_t i = 0; i < size; ++i)
        if (slots[i].token == Slot::kNone && slots[i].row != Slot::kNone)
          all += static_cast<double>(logits[i][static_cast<std::size_t>(tokens[i])]);
      return all;
    };
    double wanted = -INFINITY, relaxed = -INFINITY;
    each_sequence(size, [&](const std::vector<TokenId>& tokens) {
      for (std::size_t i = 0; i < size; ++i)
        if (slots[i].token != Slot::kNone && slots[i].token != tokens[i]) return;
      const std::string text = text_of(tokens);
      std::int32_t state = automaton.start();
      for (std::size_t i = 0; i < size && state != TokenAutomaton::kDead; ++i) state = automaton.next(state, tokens[i]);
      if (state != TokenAutomaton::kDead && automaton.accepts(state)) relaxed = std::max(relaxed, sum(tokens));
      if (dfa.matches(text)) wanted = std::max(wanted, sum(tokens));
    });
    PathFinder finder(automaton);
    const auto found = finder.best(slots, weights, 0);
    ASSERT_EQ(found.has_value(), std::isfinite(wanted)) << seed;
    if (!found) continue;
    EXPECT_NEAR(sum(*found), wanted, 1e-5) << seed;
    too_long += relaxed > wanted + 1e-5 ? 1 : 0;
  }
  EXPECT_GT(too_long, 5) << "the bounds have hardly mattered";
}

TEST(Counted, DrawsKeepToTheBounds) {
  const Dfa dfa = *compile(*two_texts(1));
  const TokenAutomaton automaton = tokens_of(dfa);
  const std::vector<Slot> slots = {{.row = 0}, {.row = 1}, {.row = 2}, {.row = 3}, {.row = 4}};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto logits = lettered_logits(slots.size(), seed);
    const std::vector<std::span<const float>> rows(logits.begin(), logits.end());
    PathFinder finder(automaton);
    const auto tokens =
        PathDrawer(automaton, finder)
            .draw(slots, rows, 0, {.temperature = seed % 2 == 0 ? 1.0 : 0.05},
                  [&](std::size_t slot, std::uint32_t attempt) {
                    return uniform01({seed, 0}, RngPurpose::kToken, 0, static_cast<std::uint32_t>(slot), attempt);
                  });
    ASSERT_TRUE(tokens.has_value());
    EXPECT_TRUE(dfa.matches(text_of(*tokens))) << text_of(*tokens);
  }
}

TEST(Counted, BoundsOfStringsCostNoStates) {
  nlohmann::ordered_json schema = {{"type", "object"}};
  for (int i = 0; i < 20; ++i) {
    schema["properties"]["f" + std::to_string(i)] = {{"type", "string"}, {"maxLength", 1000 + i}};
    schema["required"].push_back("f" + std::to_string(i));
  }
  EXPECT_LT(schema_dfa(schema.dump()).states, 1000);
  const Dfa list =
      schema_dfa(R"({"type": "array", "items": {"type": "string", "maxLength": 500}, "minItems": 10, "maxItems": 10})");
  EXPECT_LT(list.states, 400);
}

TEST(Counted, LongStringsMayBeNeeded) {
  const auto dfa_of = [](int least) {
    return compile(**parse_schema(R"({"type": "string", "minLength": )" + std::to_string(least) + "}"));
  };
  const auto dfa = dfa_of(1200);
  ASSERT_TRUE(dfa.has_value()) << dfa.error().message();
  const auto text = [](std::size_t count, const std::string& one) {
    std::string all = "\"";
    for (std::size_t i = 0; i < count; ++i) all += one;
    return all + '"';
  };
  for (const char* one : {"a", "\\n", "é", "한", "อ", "😀"}) {
    EXPECT_TRUE(dfa->matches(text(1200, one))) << one;
    EXPECT_FALSE(dfa->matches(text(1199, one))) << one;
  }
  // So long ones begin with characters of ASCII.
  const auto longer = dfa_of(4500);
  ASSERT_TRUE(longer.has_value()) << longer.error().message();
  EXPECT_TRUE(longer->matches(text(4500, "a")));
  EXPECT_TRUE(longer->matches(text(4500, "\\n")));
  EXPECT_FALSE(longer->matches(text(4499, "a")));
  EXPECT_FALSE(longer->matches(text(4500, "é")));
  EXPECT_FALSE(dfa_of(6000).has_value());
}

TEST(Counted, CharactersAreCounted) {
  const auto accepts = [](const char* schema, const std::string& text) { return schema_dfa(schema).matches(text); };
  const char* const thousand = R"({"type": "string", "maxLength": 1000})";
  EXPECT_TRUE(accepts(thousand, '"' + std::string(999, 'a') + "\u00e9\""));
  EXPECT_FALSE(accepts(thousand, '"' + std::string(1000, 'a') + "\u00e9\""));
  const char* const some = R"({"type": "string", "minLength": 2, "maxLength": 12})";
  EXPECT_FALSE(accepts(some, R"("a")"));
  EXPECT_TRUE(accepts(some, R"("\n\u00e9\\4567890\"2")"));
  EXPECT_FALSE(accepts(some, R"("\n\u00e9\\4567890\"23")"));
  // The texts of an enum may be longer than those beside it.
  const char* const either =
      R"({"anyOf": [{"type": "string", "maxLength": 20}, {"enum": ["longer than the others are"]}]})";
  EXPECT_TRUE(accepts(either, R"("longer than the others are")"));
  EXPECT_TRUE(accepts(either, R"("longer than")"));
  EXPECT_FALSE(accepts(either, R"("longer than the others aren")"));
  EXPECT_FALSE(accepts(either, '"' + std::string(21, 'a') + '"'));
}

/// What follows the two strings is the same, so that only their bounds tell their states apart.
TEST(Counted, StringsWithTheSameEndKeepTheirBounds) {
  const PatternPtr one = one_of(CharSet('a', 'b')), end = literal(">");
  const Dfa dfa = *compile(
      *either({sequence({literal("<"), counted(one, 3), end}), sequence({literal("("), counted(one, 1), end})}));
  ASSERT_EQ(dfa.most.size(), 2U);
  const auto text = [](char begin, std::size_t count) { return begin + std::string(count, 'a') + '>'; };
  for (std::size_t count = 0; count < 6; ++count) {
    EXPECT_EQ(dfa.matches(text('<', count)), count <= 3) << count;
    EXPECT_EQ(dfa.matches(text('(', count)), count <= 1) << count;
  }
}

}  // namespace
}  // namespace dllm::constrain
