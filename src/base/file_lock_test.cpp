#include "base/file_lock.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/checksum.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

class FileLockTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directory(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_ = fs::path(testing::TempDir()) /
                     fmt::format("dllm_file_lock_{}", ::getpid());  // tests run in processes of their own, at once
  std::string path_ = (folder_ / "lock").string();
};

TEST_F(FileLockTest, OneHolderAtATime) {
  auto first = FileLock::try_take(path_);
  ASSERT_TRUE(first && *first);
  const auto second = FileLock::try_take(path_);
  ASSERT_TRUE(second);
  EXPECT_FALSE(second->has_value());
  int asked = 0;
  const auto stopped = FileLock::take(path_, [&] { return ++asked < 3; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(asked, 3);
  first->reset();
  EXPECT_TRUE(FileLock::take(path_, [] { return false; }));
}

/// A holder may remove the file: its lock then says nothing about a new file of that name.
TEST_F(FileLockTest, ARemovedFileIsNoLock) {
  const auto first = FileLock::try_take(path_);
  ASSERT_TRUE(first && *first);
  fs::remove(path_);
  const auto second = FileLock::try_take(path_);
  ASSERT_TRUE(second && *second);
  EXPECT_TRUE(fs::exists(path_));
  fs::remove_all(folder_);
  const auto third = FileLock::try_take(path_);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::kIo);
}

TEST(Checksum, DoesNotDependOnThePieces) {
  std::vector<std::byte> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{1000}}) {
    const auto part = std::span(bytes).first(size);
    const std::uint64_t whole = checksum_of(part);
    for (const std::size_t piece :
         {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65}, std::size_t{200}}) {
      Checksum sum;
      for (std::size_t at = 0; at < size; at += piece) sum.add(part.subspan(at, std::min(piece, size - at)));
      EXPECT_EQ(sum.value(), whole) << size << " " << piece;
    }
  }
}

TEST(Checksum, FindsEveryChangedByteAndLength) {
  std::vector<std::byte> bytes(200, std::byte{3});
  const std::uint64_t whole = checksum_of(bytes);
  for (std::byte& one : bytes) {
    one ^= std::byte{0x40};
    EXPECT_NE(checksum_of(bytes), whole);
    one ^= std::byte{0x40};
  }
  EXPECT_NE(checksum_of(std::span(bytes).first(199)), whole);
  std::vector<std::byte> zeros(200);
  EXPECT_NE(checksum_of(zeros), checksum_of(std::span(zeros).first(136)));
}

}  // namespace
}  // namespace dllm
