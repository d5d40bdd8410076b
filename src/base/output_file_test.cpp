#include "base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <vector>

#include "base/testing/temp_dir.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

class OutputFiles : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  void put(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  std::string get(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory_), {}));
  }
  ErrorCode refused(const std::string& name, OutputOptions options = {}) const {
    const auto result = write_file(path(name), std::string_view("new"), options);
    EXPECT_FALSE(result) << name;
    EXPECT_FALSE(check_output(path(name), options)) << name;
    return result ? ErrorCode::kMismatch : result.error().code;
  }

  test::TempDir temporary_;
  fs::path directory_ = temporary_.path();
};

TEST_F(OutputFiles, AreWholeOrAsTheyWere) {
  put("x", "old");
  {
    auto file = OutputFile::create(path("x"));
    ASSERT_TRUE(file) << file.error().message();
    const std::string much(1 << 20, 'm');
    ASSERT_TRUE(file->append("new", 3));
    ASSERT_TRUE(file->append(much.data(), much.size()));
    EXPECT_EQ(file->size(), 3 + much.size());
    EXPECT_EQ(get("x"), "old");
    EXPECT_EQ(entries(), 2u);
    ASSERT_TRUE(file->commit());
    EXPECT_EQ(get("x"), "new" + much);
  }
  {
    ASSERT_TRUE(OutputFile::create(path("x")));
  }  // never committed
  OutputOptions failing{.check = [] { return Expected<void>(Error{ErrorCode::kIo, "changed", "", ""}); }};
  EXPECT_EQ(write_file(path("y"), std::string_view("y"), failing).error().what, "changed");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(OutputFiles, KeepPermissionsOfWhatTheyReplace) {
  put("x", "old");
  ::chmod(path("x").c_str(), 0600);
  ASSERT_TRUE(write_file(path("x"), std::string_view("new")));
  EXPECT_EQ(fs::status(path("x")).permissions(), fs::perms(0600));
}

TEST_F(OutputFiles, ReplaceRegularFilesOnly) {
  put("victim", "precious");
  fs::create_symlink("victim", path("link"));
  fs::create_symlink("nowhere", path("dangling"));
  fs::create_directory(path("folder"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "dangling", "folder", "pipe", "folder/", "."})
    EXPECT_EQ(refused(name), ErrorCode::kUsage) << name;
  if (::mknod(path("device").c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0) {
    EXPECT_EQ(refused("device"), ErrorCode::kUsage);
  }
  EXPECT_EQ(refused("missing/x"), ErrorCode::kIo);
  EXPECT_EQ(refused("victim/x"), ErrorCode::kIo);
  EXPECT_EQ(get("victim"), "precious");
  EXPECT_TRUE(fs::is_symlink(path("dangling")));
  EXPECT_FALSE(fs::exists(path("nowhere")));
}

TEST_F(OutputFiles, NeverReplaceTheirSources) {
  put("source", "precious");
  fs::create_hard_link(path("source"), path("other name"));
  const OutputOptions options = made_of(std::vector<std::string>{path("source"), path("missing"), ""});
  ASSERT_EQ(options.sources.size(), 1u);
  for (const char* name : {"source", "other name", "./source"}) EXPECT_EQ(refused(name, options), ErrorCode::kUsage);
  EXPECT_EQ(get("source"), "precious");
}

TEST_F(OutputFiles, RespectAFileThatComesMeanwhile) {
  auto file = OutputFile::create(path("x"), {.replace = false});
  ASSERT_TRUE(file);
  put("x", "first");
  const auto late = file->commit();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kUsage);
  EXPECT_EQ(get("x"), "first");
  EXPECT_EQ(refused("x", {.replace = false}), ErrorCode::kUsage);
}

/// A process that starts to write x and is killed by `signal` during the write.
void die_writing(const std::string& path, int signal) {
  const pid_t child = fork();
  if (child == 0) {
    auto file = OutputFile::create(path);
    if (signal == SIGTERM) ::signal(SIGTERM, [](int) { remove_temporaries(), _exit(1); });
    if (!file || !file->append("half", 4)) _exit(2);
    raise(signal);
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(signal == SIGKILL ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

TEST_F(OutputFiles, OfDeadProcessesAreSweptByTheNextWriter) {
  for (int i = 0; i < 3; ++i) die_writing(path("x"), SIGKILL);  // each removes its predecessor's temporary
  EXPECT_EQ(entries(), 1u);
  auto living = OutputFile::create(path("living"));
  ASSERT_TRUE(living);
  EXPECT_EQ(entries(), 1u);
  put(".dllm-0123456789abcdef.part.gguf", "somebody's");  // almost the name of a temporary
  put(".dllm-0123456789abcdef-mine.part", "somebody's");
  put(".dllm-0123456789ABCDEF.part", "somebody's");
  ASSERT_TRUE(write_file(path("x"), std::string_view("x")));
  EXPECT_EQ(entries(), 5u);  // x, the living temporary and the other files
  ASSERT_TRUE(living->commit());
}

TEST_F(OutputFiles, AreRemovedByHandlersOfSignals) {
  die_writing(path("x"), SIGTERM);
  EXPECT_EQ(entries(), 0u);
}

TEST_F(OutputFiles, ASourceIsNotSweptAway) {
  const std::string name = ".dllm-0123456789abcdef.part";
  put(name, "a model that somebody saved");
  ASSERT_TRUE(write_file(path("x"), std::string_view("x"), made_of(std::vector{path(name)})));
  EXPECT_EQ(get(name), "a model that somebody saved");
}

TEST_F(OutputFiles, ManyWritersOfOneTarget) {
  constexpr int kWriters = 100;
  const auto content = [](int i) { return std::string(static_cast<std::size_t>(20000 + i), static_cast<char>(i)); };
  std::vector<pid_t> writers;
  for (int i = 0; i < kWriters; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(write_file(path("x"), content(i), {.replace = i % 2 == 0}) ? 0 : 1);
    writers.push_back(child);
  }
  int first = 0;  // those that may not replace and have written: one at most
  for (int i = 0; i < kWriters; ++i) {
    int status = 0;
    ASSERT_EQ(waitpid(writers[static_cast<std::size_t>(i)], &status, 0), writers[static_cast<std::size_t>(i)]);
    ASSERT_TRUE(WIFEXITED(status));
    if (i % 2 == 0)
      EXPECT_EQ(WEXITSTATUS(status), 0);
    else
      first += WEXITSTATUS(status) == 0 ? 1 : 0;
  }
  EXPECT_LE(first, 1);
  const std::string left = get("x");
  ASSERT_GE(left.size(), 20000u);
  EXPECT_EQ(left, content(static_cast<int>(left.size()) - 20000));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(OutputFiles, AFullDiskLeavesNothing) {
  // The limit on file sizes: write() fails as on a full disk. In a separate process, as it cannot be raised again.
  const pid_t child = fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    const auto written = write_file(path("x"), std::string(100000, 'x'));
    _exit(!written && written.error().code == ErrorCode::kIo ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(entries(), 0u);
}

}  // namespace
}  // namespace dllm
