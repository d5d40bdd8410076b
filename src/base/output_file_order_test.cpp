// The order of system calls by which a file becomes durable, and what happens between them. The test program's own
// fsync() and renameat() come before the C library's.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/testing/temp_dir.h"

#include "base/output_file.h"

namespace {

std::vector<std::string>* calls = nullptr;  ///< where the calls are noted; null: nowhere
std::function<void()> before_rename;

void note(const char* what) {
  if (calls != nullptr) calls->emplace_back(what);
}

void note_rename() {
  note("rename");
  if (before_rename) before_rename();
}

}  // namespace

extern "C" int fsync(int fd) {
  struct stat status{};
  ::fstat(fd, &status);
  note(S_ISDIR(status.st_mode) ? "synchronise directory" : "synchronise file");
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int renameat(int from_directory, const char* from, int to_directory, const char* to) noexcept {
  note_rename();
  return static_cast<int>(::syscall(SYS_renameat2, from_directory, from, to_directory, to, 0U));
}

extern "C" int renameat2(int from_directory, const char* from, int to_directory, const char* to,
                         unsigned int flags) noexcept {
  note_rename();
  return static_cast<int>(::syscall(SYS_renameat2, from_directory, from, to_directory, to, flags));
}

namespace dllm {
namespace {

namespace fs = std::filesystem;

class OutputFilesOrder : public ::testing::Test {
 protected:
  void SetUp() override { calls = &noted_; }
  void TearDown() override {
    calls = nullptr;
    before_rename = {};
  }
  std::string target() const { return (directory_ / "x").string(); }
  std::string content() const {
    std::ifstream file(target(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  test::TempDir temporary_;
  fs::path directory_ = temporary_.path();
  std::vector<std::string> noted_;
};

TEST_F(OutputFilesOrder, BytesAreOnDiskBeforeTheirNameAndTheNameBeforeSuccess) {
  OutputOptions options;
  options.check = [&] {
    noted_.emplace_back("check");
    return Expected<void>();
  };
  const std::vector<std::string> order = {"synchronise file", "check", "rename", "synchronise directory"};
  for (const bool replace : {true, false}) {
    fs::remove(target());
    noted_.clear();
    options.replace = replace;
    ASSERT_TRUE(write_file(target(), std::string_view("new"), options));
    EXPECT_EQ(noted_, order);
  }
}

TEST_F(OutputFilesOrder, AFileThatComesBeforeTheRenamingStays) {
  before_rename = [&] { std::ofstream(target()) << "first"; };
  const auto written = write_file(target(), std::string_view("second"), {.replace = false});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kUsage);
  EXPECT_EQ(content(), "first");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1) << "no temporary stays";
}

}  // namespace
}  // namespace dllm
