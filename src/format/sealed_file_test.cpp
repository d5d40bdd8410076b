#include "format/sealed_file.h"

#include <gtest/gtest.h>

#include "format/testing/test_files.h"

namespace dllm {
namespace {

using namespace test;

std::string sealed(const TempDir& dir, const std::string& payload, std::uint64_t key) {
  const std::string path = dir / "file";
  auto writer = SealedWriter::create(path, key);
  EXPECT_TRUE(writer);
  const auto bytes = as_bytes(payload);
  const std::size_t half = payload.size() / 2;
  EXPECT_TRUE(writer->append(bytes.first(half)));
  EXPECT_TRUE(writer->append(bytes.subspan(half)));
  EXPECT_TRUE(writer->commit());
  return path;
}

TEST(SealedFile, GivesBackWhatWasWritten) {
  const TempDir dir;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{100'001}}) {
    const std::string payload(size, 'p'), path = sealed(dir, payload, 7);
    const auto file = SealedFile::open(path, 7);
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_TRUE(std::ranges::equal(file->payload(), as_bytes(payload)));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file->payload().data()) % 64, 0u);
    const auto other = SealedFile::open(path, 8);
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().code, ErrorCode::kMismatch);
  }
}

TEST(SealedFile, NoDamageIsBelieved) {
  const TempDir dir;
  const std::string path = sealed(dir, "some numbers that took an hour", 7), whole = read_file(path);
  const auto refused = [&](const std::string& bytes) {
    EXPECT_TRUE(write_file(path, bytes));
    const auto file = SealedFile::open(path, 7);
    return !file && file.error().where.find(path) != std::string::npos;
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_TRUE(refused(changed)) << i;
    EXPECT_TRUE(refused(whole.substr(0, i))) << i;
  }
  EXPECT_TRUE(refused(whole + "x"));
  EXPECT_TRUE(refused(whole + whole));
  EXPECT_TRUE(refused(std::string(whole.size(), '\0')));
  EXPECT_FALSE(refused(whole));
}

}  // namespace
}  // namespace dllm
