#include "constrain/regex_term.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "base/try.h"
#include "constrain/dfa.h"
#include "constrain/product.h"
#include "constrain/regex.h"

namespace dllm::constrain {
namespace {

Expected<Dfa> compiled(const std::string& text, RegexScope scope) {
  DLLM_TRY(const PatternPtr pattern, parse_regex(text, scope));
  return compile(*pattern);
}

/// Every text of up to so many letters.
void for_each_text(std::string_view letters, std::size_t most, const std::function<void(const std::string&)>& visit) {
  for (std::size_t size = 0; size <= most; ++size) {
    std::vector<std::size_t> at(size, 0);
    for (bool more = true; more;) {
      std::string text;
      for (const std::size_t one : at) text += letters[one];
      visit(text);
      std::size_t place = 0;
      while (place < size && ++at[place] == letters.size()) at[place++] = 0;
      more = place < size;
    }
  }
}

int agreeing(const std::string& pattern, RegexScope scope, std::string_view letters, std::size_t most) {
  const auto dfa = compiled(pattern, scope);
  EXPECT_TRUE(dfa || dfa.error().what == "no text matches") << pattern << ": " << dfa.error().message();
  const std::regex standard(pattern);
  int accepted = 0;
  for_each_text(letters, most, [&](const std::string& text) {
    const bool expected =
        scope == RegexScope::kWhole ? std::regex_match(text, standard) : std::regex_search(text, standard);
    EXPECT_EQ(dfa && dfa->matches(text), expected) << pattern << " on '" << text << "'";
    accepted += expected ? 1 : 0;
  });
  return accepted;
}

TEST(RegexTerm, LookAheadsAgreeWithTheStandardLibrary) {
  int accepted = 0;
  for (const char* pattern : {"(?=ab)a.*",
                              "(?!ab).*",
                              "^(?=.*a)(?=.*b).{3,}$",
                              "^(?!.*aa).*$",
                              "a(?=b)",
                              "a(?!b)",
                              "(?:(?=a)..|b)c*",
                              "^(?!(?:a|b)$)[abc]+$",
                              "(?=a)(?!ab)\\w+",
                              "(a$)|^b",
                              "(?:^a|b)c",
                              "^(?:a(?=c)|b){1,3}?c?",
                              "(^|c)ab",
                              "a(b|$)",
                              "(?=(?!a)b)b",
                              "^a(?=b(?=c))",
                              "c*(?:^a|b)",
                              "(?:(?!a)[abc]){2}$",
                              "(?=a|$)b?",
                              "^(?=a$|b)",
                              "(?!)",
                              "(?=)a",
                              "(?<name>a)b",
                              "^(?!^[-+.]*$)a*",
                              "(?:^)(?:$)",
                              "((?=a)){0,2}b"}) {
    // An expression of std::regex has no named groups, and is otherwise the same.
    std::string plain = pattern;
    if (const std::size_t name = plain.find("<name>"); name != plain.npos) plain.replace(name - 1, 7, "");
    if (plain != pattern) {
      EXPECT_TRUE(compiled(pattern, RegexScope::kWhole)->matches("ab"));
      EXPECT_TRUE(compiled("(?P<name>a)b", RegexScope::kWhole)->matches("ab"));
    }
    accepted += agreeing(plain, RegexScope::kWhole, "abc", 5);
    accepted += agreeing(plain, RegexScope::kSearch, "abc", 5);
  }
  EXPECT_GT(accepted, 3000);
}

TEST(RegexTerm, RandomLookAheadsAgreeWithTheStandardLibrary) {
  std::mt19937 rng(5);
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    const std::function<std::string(int)> expression = [&](int depth) -> std::string {
      const auto pick = rng() % (depth > 0 ? 10 : 3);
      if (pick < 2) return std::string(1, "ab"[pick]);
      if (pick == 2) return "[ab]?";
      if (pick < 5) return expression(depth - 1) + expression(depth - 1);
      if (pick == 5) return "(?:" + expression(depth - 1) + "|" + expression(depth - 1) + ")";
      if (pick == 6) return "(?:" + expression(depth - 1) + (rng() % 2 == 0 ? ")?" : ")*");
      if (pick == 7) return "(?:" + expression(depth - 1) + "|$)";
      return (rng() % 2 == 0 ? "(?=" : "(?!") + expression(depth - 1) + ")";
    };
    const std::string pattern = expression(4);
    const auto parsed = parse_regex(pattern);
    if (!parsed) {
      ++refused;
      continue;
    }
    agreeing(pattern, RegexScope::kWhole, "ab", 6);
    agreeing(pattern, RegexScope::kSearch, "ab", 6);
  }
  EXPECT_LT(refused, 60);  // look-aheads that are repeated without end, and texts after a '$'
}

/// As pydantic writes decimals, and zod addresses.
TEST(RegexTerm, ExpressionsOfOthers) {
  const auto decimal =
      compiled(R"(^(?!^[-+.]*$)[+-]?0*(?:\d{0,3}$|(?=[\d.]{1,6}0*$)\d{0,3}\.\d{0,2}0*$))", RegexScope::kSearch);
  ASSERT_TRUE(decimal.has_value()) << decimal.error().message();
  for (const char* text : {"1", "-1.5", "+0012.30", "123.45", ".5", "0"}) EXPECT_TRUE(decimal->matches(text)) << text;
  for (const char* text : {"", "-", "+.", "a", "-a", "."}) EXPECT_FALSE(decimal->matches(text)) << text;
  const auto email =
      compiled(R"(^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$)",
               RegexScope::kSearch);
  ASSERT_TRUE(email.has_value()) << email.error().message();
  EXPECT_TRUE(email->matches("a.b@example.org"));
  for (const char* text : {".a@b.org", "a..b@c.org", "a@b", "a.@b.org "}) EXPECT_FALSE(email->matches(text)) << text;
  const auto password = compiled(R"(^(?=.*[A-Z])(?=.*\d)(?=.*[^\w\s]).{8,}$)", RegexScope::kSearch);
  ASSERT_TRUE(password.has_value()) << password.error().message();
  EXPECT_TRUE(password->matches("abcDe_1?x"));
  for (const char* text : {"abcde_1?x", "abcDe_?xx", "abcDe_12x", "aD1?"})
    EXPECT_FALSE(password->matches(text)) << text;
}

TEST(RegexTerm, WhatCannotBeOrIsTooMuchIsRefused) {
  const auto repeated = parse_regex("(?:(?!ab).)*");
  ASSERT_FALSE(repeated.has_value());
  EXPECT_NE(repeated.error().message().find("repeated"), std::string::npos);
  std::string many, deep = "a", steps = "(?=a)b";
  for (int i = 0; i < 40; ++i) many += "(?=a)", deep = "(?=" + deep + ")";
  for (int i = 0; i < 8; ++i) steps = "(?:" + steps + "){8}";
  for (const std::string& text : {many, deep, steps}) EXPECT_FALSE(parse_regex(text).has_value()) << text;
  // What precedes the '^' may be empty, and need not.
  EXPECT_FALSE(parse_regex("(?:(?=b)|a)(?:^b)").has_value());
  std::string ends = "(?:b|$)";
  for (int i = 0; i < 6; ++i) ends = "(?:" + ends + "){8}";
  EXPECT_FALSE(parse_regex(ends).has_value());
  // Fewer steps, each within the one before.
  std::string within;
  for (int i = 0; i < 5000; ++i) within += "(?:b|$)";
  EXPECT_FALSE(parse_regex(within).has_value());
  // A product takes from the budget of the whole: n automata of which each fits do not.
  std::string big = "^";
  for (int i = 0; i < 30; ++i) big += "(?=.*a.{" + std::to_string(i % 6) + "}b.{8}$)";
  const auto parsed = parse_regex(big, RegexScope::kSearch);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_FALSE(compile(**parsed).has_value());
  EXPECT_FALSE(compile(**parse_regex("(?=a{200}b)a*b"), {.states = 100}).has_value());
}

TEST(RegexTerm, AllProductsTakeFromOneBudget) {
  const auto compiles = [](int looks, std::int64_t work) {
    std::string text;
    for (int i = 0; i < looks; ++i) text += "(?=.*a)";
    return compile(**parse_regex(text + ".*"), {.work = work}).has_value();
  };
  std::int64_t enough = 64;
  while (!compiles(1, enough)) enough *= 2;
  EXPECT_TRUE(compiles(1, enough));
  EXPECT_FALSE(compiles(30, 4 * enough));
  EXPECT_TRUE(compiles(30, 200 * enough));
}

TEST(Product, IsTheProductOfLanguages) {
  const auto a = compiled("a*b?", RegexScope::kWhole), b = compiled("(aa)*b?", RegexScope::kWhole);
  std::int64_t work = 10'000;
  const auto common = product(*a, *b, Product::kBoth, 100, work), rest = product(*a, *b, Product::kExcept, 100, work);
  ASSERT_TRUE(common && rest);
  EXPECT_LT(work, 10'000);
  for_each_text("abc", 5, [&](const std::string& text) {
    EXPECT_EQ(common->matches(text), a->matches(text) && b->matches(text)) << text;
    EXPECT_EQ(rest->matches(text), a->matches(text) && !b->matches(text)) << text;
  });
  EXPECT_FALSE(product(*a, *b, Product::kBoth, 1, work).has_value());
  std::int64_t little = 3;
  EXPECT_FALSE(product(*a, *b, Product::kBoth, 100, little).has_value());
  const Dfa nothing;
  EXPECT_EQ(product(nothing, *a, Product::kExcept, 100, work)->states, 0);
  EXPECT_EQ(product(*a, nothing, Product::kBoth, 100, work)->states, 0);
  EXPECT_TRUE(product(*a, nothing, Product::kExcept, 100, work)->matches("aab"));
}

}  // namespace
}  // namespace dllm::constrain
