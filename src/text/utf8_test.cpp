#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "text/tokenizer/byte_alphabet.h"

namespace dllm {
namespace {

TEST(Utf8, ReplacesMaximalSubparts) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("a\xC3\xA9z"), "a\xC3\xA9z");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82"), bad);                  // truncated: one
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82("), bad + "(");           // interrupted: one
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), bad + bad);            // overlong
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), bad + bad + bad);  // surrogate
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
}

TEST(Utf8, EveryScalarValueSurvives) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(text, code);
    const Utf8Char c = utf8_at(text, 0);
    ASSERT_TRUE(c.valid);
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(c.size, text.size());
  }
}

TEST(ByteAlphabet, IsABijection) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(decode_alphabet(encode_alphabet(all)), all);
  EXPECT_EQ(encode_alphabet(" \n"), "\xC4\xA0\xC4\x8A");  // GPT-2's space and newline
  EXPECT_EQ(decode_alphabet("a b"), std::nullopt);
}

}  // namespace
}  // namespace dllm
