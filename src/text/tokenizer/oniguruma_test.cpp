#include "text/tokenizer/oniguruma.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/pretokenizer.h"

namespace dllm {
namespace {

std::string translated(std::string_view pattern) {
  const auto out = from_oniguruma(pattern);
  return out ? *out : "error: " + out.error().what;
}

/// The pieces of `text`, with bars between.
std::string pieces(const std::string& pattern, std::string_view text) {
  const auto splitter = Pretokenizer::compile({pattern}, {});
  if (!splitter) return "error: " + splitter.error().message();
  std::vector<std::string_view> parts;
  splitter->split(text, parts);
  std::string out;
  for (const std::string_view part : parts) out += (out.empty() ? "" : "|") + std::string(part);
  return out;
}

TEST(Oniguruma, TranslatesWhatDiffers) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"(\p{L}+|\d)", R"([\p{L}]+|[\p{Nd}])"},
      {R"([^\s\p{L}]+)", R"([^\t-\r\x{85}\p{Z}\p{L}]+)"},
      {R"(\S)", R"([^\t-\r\x{85}\p{Z}])"},
      {R"(\h[\H])", R"([0-9A-Fa-f](?:[^0-9A-Fa-f]))"},
      {"[a-z&&[^l]]", "(?:(?=[a-z])(?:[^l]))"},
      {"a{,2}b{2}+c{3}?", "a{0,2}(?:b{2})+(?:c{3})?"},
      {"a{1,2}?b{,}", "a{1,2}?b\\{,}"},
      {"(?m).a(?-m:.)", "(?:(?s:.)a(?:.))"},
      {"a(?i)b|c", "a(?i:b|c)"},
      {"(?x) a # b\n [ ]", "(?:a[ ])"},
      {"(?<name>a)++", "(?:a)++"},
      {R"(\N\O\u0061\141)", R"([^\n](?s:.)\x{61}\x{61})"},
      {"[]a]", R"([\]a])"},
      {"[[:punct:]]", R"([\p{P}\p{S}])"},
      {R"(\p{Punct})", R"([\p{P}])"},
      {R"(\p{Han}\p{emoji}\p{lu})", R"([\p{sc:Han}][\p{Emoji}][\p{Lu}])"},
  };
  for (const auto& [pattern, expected] : cases) EXPECT_EQ(translated(pattern), expected) << pattern;
}

// As tokenizers 0.23 splits them.
TEST(Oniguruma, SplitsAsOniguruma) {
  EXPECT_EQ(pieces("[a-z&&[^aeiou]]+", "hello"), "h|e|ll|o");
  EXPECT_EQ(pieces("[^a-z&&[aeiou]]+", "hello AE"), "h|e|ll|o| AE");
  EXPECT_EQ(pieces("[a-c&&b-d&&c-e]", "abcde"), "ab|c|de");
  EXPECT_EQ(pieces(R"([\w&&[^\d]]+)", "ab12\u00E9_"), "ab|12|\u00E9_");
  EXPECT_EQ(pieces("[^[^a]]", "ab"), "a|b");
  EXPECT_EQ(pieces(R"(\h+)", "abc fz09G"), "abc| |f|z|09|G");
  EXPECT_EQ(pieces(R"(\w+)", "cafe\u0301 x"), "cafe\u0301| |x");
  EXPECT_EQ(pieces(R"(\w+)", "z\u00BD-"), "z\u00BD|-");
  EXPECT_EQ(pieces(R"([\w]+)", "z\u00BD-"), "z|\u00BD-");
  EXPECT_EQ(pieces(R"([^\S]+|\S+)", "\u1820\u180E"), "\u1820\u180E");
  EXPECT_EQ(pieces("(?m).+", "ab\ncd"), "ab\ncd");
  EXPECT_EQ(pieces("a{2}+", "aaaaa"), "aaaa|a");
  EXPECT_EQ(pieces("a{1,2}+a", "aaa"), "aaa");
  EXPECT_EQ(pieces(R"(\bc)", "ab cd"), "ab |c|d");
  EXPECT_EQ(pieces("(?i)[^s]", "S\u017Fx"), "S\u017F|x");
}

TEST(Oniguruma, RefusesByName) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"(\X)", R"(uses \X)"},
      {R"((a)\1)", R"(the reference \1)"},
      {"(?~ab)", "uses (?~"},
      {R"(a\k<x>)", R"(uses \k)"},
      {"(?i)\\p{Lu}", "under (?i)"},
      {R"(\p{InGreek})", "the block"},
      {"(?a)x", "uses (?a"},
      {"[[:", "uses '[:'"},
      {"(*FAIL)", "uses (*"},
      {"*a", "nothing to repeat"},
      {"[a", "a class without end"},
      {"(a", "a group without end"},
      {"a)", "unmatched ')'"},
      {R"([\d-z])", "begins with a set"},
      {R"([a-\d])", "ends with a set"},
      {R"(\p{L)", "without {name}"},
      {R"(\x{110000})", "no character"},
      {"^*", "a repeated assertion"},
      {"a{100000}", "more than 99999"},
  };
  for (const auto& [pattern, expected] : cases) {
    EXPECT_NE(translated(pattern).find(expected), std::string::npos) << pattern << ": " << translated(pattern);
  }
  EXPECT_FALSE(from_oniguruma(std::string(5000, '(')).has_value());
  EXPECT_FALSE(from_oniguruma(std::string(5000, '[')).has_value());
}

}  // namespace
}  // namespace dllm
