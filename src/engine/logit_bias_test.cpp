#include "engine/logit_bias.h"

#include <gtest/gtest.h>

#include <limits>

namespace dllm {
namespace {

TEST(LogitBias, ReadsIdsWithSignedBiases) {
  const auto tokens = parse_logit_bias("30+2.5,7-1e2,12-inf", 100);
  ASSERT_TRUE(tokens) << tokens.error().message();
  ASSERT_EQ(tokens->size(), 3U);
  EXPECT_EQ((*tokens)[0].token, 7);
  EXPECT_EQ((*tokens)[0].bias, -100);
  EXPECT_EQ((*tokens)[1].token, 12);
  EXPECT_EQ((*tokens)[1].bias, -std::numeric_limits<float>::infinity());
  EXPECT_EQ((*tokens)[2].token, 30);
  EXPECT_EQ((*tokens)[2].bias, 2.5);
  EXPECT_TRUE(parse_logit_bias("", 100)->empty());
}

TEST(LogitBias, RefusesAllElse) {
  for (const char* text : {"7", "+1", "7+", "7+-1", "7--1", "7++1", "x+1", "7+x", "7+1,", ",7+1", "7+1,,8+1", "7 +1",
                           "7+1;8+1", "7+nan", "7+inf", "100+1", "99999999999+1", "7+1,7-1", "7+1e99"}) {
    const auto tokens = parse_logit_bias(text, 100);
    ASSERT_FALSE(tokens) << text;
    EXPECT_EQ(tokens.error().where, "--logit-bias");
    EXPECT_FALSE(tokens.error().hint.empty());
  }
}

}  // namespace
}  // namespace dllm
