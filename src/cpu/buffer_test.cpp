#include "cpu/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <new>

namespace dllm::cpu {
namespace {

TEST(Buffer, SizesEndWhereTheyMakeNoSense) {
  EXPECT_EQ(bytes_of<float>(3), 12u);
  EXPECT_EQ(bytes_of<std::byte>(std::int64_t{1} << 46), std::size_t{1} << 46);
  EXPECT_THROW(bytes_of<std::byte>((std::int64_t{1} << 46) + 1), std::bad_alloc);
  EXPECT_EQ(bytes_of<double>(std::int64_t{1} << 43), std::size_t{1} << 46);
  EXPECT_THROW(bytes_of<double>((std::int64_t{1} << 43) + 1), std::bad_alloc);
  EXPECT_THROW(bytes_of<float>(-1), std::bad_alloc);
}

// The size of a buffer must fit into the type that counts it: on 32 bits, 2^46 is no limit.
TEST(Buffer, SizesOfThirtyTwoBitsAreTwoGigabytesAtMost) {
  constexpr std::uint64_t kNarrow = std::numeric_limits<std::uint32_t>::max();
  EXPECT_EQ(most_bytes(kNarrow), 0x7fffffffu);
  EXPECT_EQ(most_bytes(std::numeric_limits<std::uint64_t>::max()), std::uint64_t{1} << 46);
}

}  // namespace
}  // namespace dllm::cpu
