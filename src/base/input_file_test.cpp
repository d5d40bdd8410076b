#include "base/input_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/testing/temp_dir.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

class InputFiles : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (directory_ / name).string(); }

  test::TempDir temporary_;
  fs::path directory_ = temporary_.path();
};

TEST_F(InputFiles, AreReadWholeUpToALimit) {
  for (const std::size_t size : {0u, 1u, 65536u, 1000000u}) {
    const std::string text(size, 'x');
    std::ofstream(path("x")) << text;
    const auto read = read_input(path("x"), 1000000);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, text);
  }
  EXPECT_FALSE(read_input(path("x"), 999999));
  const auto beginning = read_beginning(path("x"), 4);
  ASSERT_TRUE(beginning);
  EXPECT_EQ(*beginning, "xxxx");
}

TEST_F(InputFiles, OfOtherKindsAreRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  for (const std::string& name : {path("pipe"), path("missing"), directory_.string(), std::string("/dev/zero"),
                                  std::string("/dev/random"), std::string()}) {
    const auto read = read_input(name);
    ASSERT_FALSE(read) << name;
    EXPECT_EQ(read.error().code, ErrorCode::kIo);
    EXPECT_FALSE(read_beginning(name, 4));
  }
  const auto nothing = read_input("/dev/null");
  ASSERT_TRUE(nothing);
  EXPECT_EQ(*nothing, "");
}

TEST_F(InputFiles, ThePipesOfAShellAreRead) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(write(ends[1], "from a pipe", 11), 11);
  close(ends[1]);
  const auto read = read_input("/dev/fd/" + std::to_string(ends[0]));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(*read, "from a pipe");
  close(ends[0]);
}

}  // namespace
}  // namespace dllm
