#include "base/utc.h"

#include <gtest/gtest.h>

namespace dllm {
namespace {

TEST(Utc, WritesRfc3339) {
  EXPECT_EQ(utc_text(std::int64_t{0}), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc_text(std::int64_t{951827696}), "2000-02-29T12:34:56Z");
  const std::chrono::system_clock::time_point time{std::chrono::milliseconds(951827696007)};
  EXPECT_EQ(utc_text(time), "2000-02-29T12:34:56.007Z");
}

}  // namespace
}  // namespace dllm
