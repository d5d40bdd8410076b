#include "base/percent.h"

#include <gtest/gtest.h>

namespace dllm {
namespace {

TEST(Percent, DecodesTriplesAndLeavesTheRest) {
  EXPECT_EQ(percent_decoded(""), "");
  EXPECT_EQ(percent_decoded("org%2Fmodel%3aq4"), "org/model:q4");
  EXPECT_EQ(percent_decoded("a+b%20%C3%A9%00z"), std::string("a+b \xc3\xa9\0z", 8));
}

TEST(Percent, RefusesWhatBeginsNoTriple) {
  for (const char* text : {"%", "a%2", "%g0", "%0g", "%%41", "%-1", "% 1"}) EXPECT_FALSE(percent_decoded(text)) << text;
}

}  // namespace
}  // namespace dllm
