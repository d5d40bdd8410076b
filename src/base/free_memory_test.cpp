#include "base/free_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/testing/temp_dir.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

class FreeMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    write("proc/meminfo", "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n");
  }

  void write(const std::string& path, const std::string& text) const {
    const fs::path whole = root_ / path;
    fs::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  std::int64_t free() const { return free_memory(root_.string()).value_or(-1); }

  test::TempDir temporary_;
  fs::path root_ = temporary_.path();
};

TEST_F(FreeMemory, IsWhatTheSystemHas) {
  EXPECT_EQ(free(), 8'192'000'000);
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(free(), 8'192'000'000);
  fs::remove_all(root_ / "proc");
  EXPECT_EQ(free(), -1);
}

TEST_F(FreeMemory, IsWhatTheGroupsLeave) {
  write("proc/self/cgroup", "0::/pod/box\n");
  write("sys/fs/cgroup/pod/box/memory.max", "max\n");
  write("sys/fs/cgroup/pod/memory.max", "4000000000\n");
  write("sys/fs/cgroup/pod/memory.current", "1500000000\n");
  write("sys/fs/cgroup/pod/memory.stat",
        "anon 1000000000\nfile 500000000\ninactive_file 300000000\nactive_file 200000000\n");
  EXPECT_EQ(free(), 3'000'000'000) << "pages of files are given up";
  write("sys/fs/cgroup/pod/box/memory.max", "1000000000\n");
  write("sys/fs/cgroup/pod/box/memory.current", "1200000000\n");
  EXPECT_EQ(free(), 0);
}

TEST_F(FreeMemory, IsWhatGroupsOfTheFirstVersionLeave) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/abc\n");
  write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "2000000000\n");
  write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "500000000\n");
  EXPECT_EQ(free(), 1'500'000'000);
}

TEST_F(FreeMemory, IsWhatTheAddressSpaceLeaves) {
  write("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max address space         unlimited            unlimited            bytes     \n");
  write("proc/self/status", "Name:\tdllm\nVmPeak:\t 2000000 kB\nVmSize:\t 1000000 kB\n");
  EXPECT_EQ(free(), 8'192'000'000);
  write("proc/self/limits",
        "Max file size 1 2 bytes\nMax address space         3000000000           unlimited   bytes\n");
  EXPECT_EQ(free(), 1'976'000'000);
  write("proc/self/limits", "Max address space         900000000            unlimited            bytes     \n");
  EXPECT_EQ(free(), 0);
}

TEST(FreeMemoryHere, IsKnown) { EXPECT_GT(free_memory().value_or(0), 1 << 20); }

}  // namespace
}  // namespace dllm
