#include "constrain/regex.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <regex>
#include <stop_token>
#include <string>

#include "base/testing/fuzz_replay.h"
#include "constrain/dfa.h"
#include "constrain/nfa.h"
#include "constrain/testing/fuzz_entry.h"
#include "text/utf8.h"

namespace dllm::constrain {
namespace {

Dfa dfa_of(const std::string& text, RegexScope scope = RegexScope::kWhole) {
  auto pattern = parse_regex(text, scope);
  EXPECT_TRUE(pattern.has_value()) << text << ": " << (pattern ? "" : pattern.error().message());
  auto dfa = compile(**pattern);
  EXPECT_TRUE(dfa.has_value()) << text << ": " << (dfa ? "" : dfa.error().message());
  return *std::move(dfa);
}

std::string random_text(std::mt19937& rng, std::string_view alphabet, std::size_t most) {
  std::string text;
  for (std::size_t size = rng() % (most + 1); text.size() < size;) text += alphabet[rng() % alphabet.size()];
  return text;
}

TEST(Regex, AgreesWithTheStandardLibraryOnRandomTexts) {
  constexpr std::string_view kAlphabet = "ab0_- \n1";
  std::mt19937 rng(7);
  int accepted = 0;
  for (const char* pattern :
       {"a*b+",          "(a|b)*",   "[ab]{2,4}",     "a{3}",     "a{2,}b?", "[^a]*",        "\\d+",
        "\\w*\\s?",      "\\D\\W?",  "(ab|a)(b|ba)?", ".*",       ".a.",     "[a-b0-1]*",    "(a?){3}b",
        "(?:a|(?:b0))*", "[\\d_]+-", "a||b",          "(a*)*",    "(a|)+b",  "\\x61\\u0062", "[^\\s]+",
        "a*?b+?",        "[-a]*",    "[a-]*",         "\\-?1{0}", "^a*$",    "\\S{0,3}"}) {
    const Dfa dfa = dfa_of(pattern);
    const Dfa search = dfa_of(pattern, RegexScope::kSearch);
    const std::regex standard(pattern);
    for (int i = 0; i < 400; ++i) {
      const std::string text = random_text(rng, kAlphabet, 7);
      EXPECT_EQ(dfa.matches(text), std::regex_match(text, standard)) << pattern << " on '" << text << "'";
      // ECMAScript's ^ and $ match at lines in libstdc++, ours at the ends.
      if (text.find('\n') == text.npos) {
        EXPECT_EQ(search.matches(text), std::regex_search(text, standard)) << pattern << " in '" << text << "'";
      }
      accepted += dfa.matches(text) ? 1 : 0;
    }
  }
  EXPECT_GT(accepted, 1000);
}

TEST(Regex, RandomExpressionsAgreeWithTheStandardLibrary) {
  std::mt19937 rng(11);
  const std::function<std::string(int)> expression = [&](int depth) -> std::string {
    const auto pick = rng() % (depth > 0 ? 7 : 3);
    if (pick < 2) return std::string(1, "ab"[pick]);
    if (pick == 2) return "[ab]";
    if (pick == 3) return expression(depth - 1) + expression(depth - 1);
    if (pick == 4) return "(" + expression(depth - 1) + "|" + expression(depth - 1) + ")";
    const std::string inner = "(" + expression(depth - 1) + ")";
    const char* times[] = {"*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}"};
    return inner + times[rng() % 7];
  };
  for (int i = 0; i < 150; ++i) {
    const std::string pattern = expression(4);
    const Dfa dfa = dfa_of(pattern);
    const std::regex standard(pattern);
    for (int j = 0; j < 60; ++j) {
      const std::string text = random_text(rng, "ab", 8);
      EXPECT_EQ(dfa.matches(text), std::regex_match(text, standard)) << pattern << " on '" << text << "'";
    }
  }
}

TEST(Regex, CharactersAreUtf8) {
  const Dfa any = dfa_of(".");
  const Dfa greek = dfa_of("[α-ω]+");
  const Dfa not_a = dfa_of("[^a]");
  for (char32_t c = 0; c <= kLastChar; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    EXPECT_EQ(any.matches(text), c != '\n' && c != '\r' && c != 0x2028 && c != 0x2029)
        << std::hex << static_cast<unsigned>(c);
    EXPECT_EQ(not_a.matches(text), c != 'a') << std::hex << static_cast<unsigned>(c);
    EXPECT_EQ(greek.matches(text), c >= 0x3B1 && c <= 0x3C9) << std::hex << static_cast<unsigned>(c);
  }
  for (const char* invalid : {"\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\x80", ""})
    EXPECT_FALSE(any.matches(invalid));
  EXPECT_TRUE(dfa_of("日本+").matches("日本本"));
  EXPECT_FALSE(dfa_of("日本+").matches("日日"));
}

/// States that some text tells apart, by brute force over pairs.
TEST(Regex, AutomataAreAsSmallAsPossible) {
  for (const char* pattern : {"(a|b)*abb", "(ab|cd|ef)*", "a{3,7}", "[α-ω]*x", "(a|b)*a(a|b){3}"}) {
    const Dfa dfa = dfa_of(pattern);
    const auto n = static_cast<std::size_t>(dfa.states);
    std::vector<std::vector<bool>> differ(n + 1, std::vector<bool>(n + 1, false));
    const auto next = [&](std::size_t s, std::size_t c) {
      if (s == n) return n;
      const std::int32_t to = dfa.next[s * static_cast<std::size_t>(dfa.classes) + c];
      return to == Dfa::kDead ? n : static_cast<std::size_t>(to);
    };
    const auto accepts = [&](std::size_t s) { return s < n && dfa.accepting[s] != 0; };
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t a = 0; a <= n; ++a)
        for (std::size_t b = 0; b <= n; ++b) {
          bool now = accepts(a) != accepts(b);
          for (std::size_t c = 0; c < static_cast<std::size_t>(dfa.classes) && !now; ++c)
            now = differ[next(a, c)][next(b, c)];
          changed = changed || (now && !differ[a][b]);
          differ[a][b] = differ[a][b] || now;
        }
    }
    for (std::size_t a = 0; a <= n; ++a)
      for (std::size_t b = 0; b < a; ++b) EXPECT_TRUE(differ[a][b]) << pattern << ": " << a << ", " << b;
  }
}

TEST(Regex, ErrorsSayWhere) {
  for (const auto& [pattern, where] :
       {std::pair("a(b", "byte 3"),     std::pair("a)", "byte 1"),       std::pair("[ab", "byte 3"),
        std::pair("*a", "byte 0"),      std::pair("a{2", "byte 3"),      std::pair("a{3,2}", "byte 6"),
        std::pair("(?<=a)", "byte 2"),  std::pair("(a)\\1", "byte 5"),   std::pair("a\\b", "byte 3"),
        std::pair("a^b", "byte 1"),     std::pair("a$b", "byte 2"),      std::pair("(?i)a", "byte 2"),
        std::pair("[b-a]", "byte 4"),   std::pair("[]", "byte 1"),       std::pair("\\p{L}", "byte 2"),
        std::pair("a**", "byte 2"),     std::pair("a\\", "byte 2"),      std::pair("\\xZZ", "byte 2"),
        std::pair("\\ud800", "byte 6"), std::pair("a{99999}", "byte 8"), std::pair("\xFF", "byte 0")}) {
    const auto parsed = parse_regex(pattern);
    ASSERT_FALSE(parsed.has_value()) << pattern;
    EXPECT_EQ(parsed.error().code, ErrorCode::kUsage);
    EXPECT_EQ(parsed.error().where.substr(0, 6), where) << pattern << ": " << parsed.error().message();
  }
  EXPECT_FALSE(parse_regex(std::string(300, '(') + std::string(300, ')')).has_value());
}

TEST(Regex, FuzzCorpus) { dllm::test::replay_corpus("constraint", 60, fuzz_constraint); }

/// ECMA-262, 12.2 and 12.3.
TEST(Regex, SpacesAreThoseOfEcmaScript) {
  const std::u32string spaces =
      U"\t\n\v\f\r \u00A0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
      U"\u2009\u200A\u2028\u2029\u202F\u205F\u3000\uFEFF";
  const Dfa space = dfa_of("\\s"), other = dfa_of("[^\\s]");
  for (char32_t c = 0; c < 0x10000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    EXPECT_EQ(space.matches(text), spaces.find(c) != spaces.npos) << std::hex << static_cast<unsigned>(c);
    EXPECT_NE(space.matches(text), other.matches(text)) << std::hex << static_cast<unsigned>(c);
  }
}

TEST(Regex, CompilingCanBeStoppedBeforeTheAutomatonIsDeterministic) {
  const auto pattern = parse_regex("(abcd){2000}");
  std::stop_source stop;
  Products products;
  const NfaLimits limits{.states = 100'000, .visits = 100'000, .stop = stop.get_token()};
  EXPECT_TRUE(build_nfa(**pattern, limits, products).has_value());
  stop.request_stop();
  EXPECT_FALSE(build_nfa(**pattern, limits, products).has_value());
}

TEST(Regex, SizeIsLimited) {
  for (const char* pattern : {"(a|b)*a(a|b){20}", "(.{9000}){9000}", "((a{100}){100}){100}"}) {
    const auto parsed = parse_regex(pattern);
    ASSERT_TRUE(parsed.has_value()) << pattern;
    const auto dfa = compile(**parsed);
    ASSERT_FALSE(dfa.has_value()) << pattern;
    EXPECT_NE(dfa.error().what.find("too large"), std::string::npos);
  }
  // Each limit for itself, and while the automaton grows: what is refused has not been paid for.
  const auto parsed = parse_regex("(a|b)*a(a|b){10}");
  ASSERT_TRUE(compile(**parsed).has_value());
  for (const DfaLimits& limits : {DfaLimits{.states = 1000}, DfaLimits{.work = 10'000}, DfaLimits{.cells = 2'000}})
    EXPECT_FALSE(compile(**parsed, limits).has_value());
  const auto nothing = compile(*one_of({}));
  ASSERT_FALSE(nothing.has_value());
  EXPECT_EQ(nothing.error().what, "no text matches");
}

}  // namespace
}  // namespace dllm::constrain
