#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "base/os_files.h"
#include "base/os_memory.h"
#include "base/os_process.h"
#include "base/os_sockets.h"
#include "base/testing/temp_dir.h"

namespace dllm {
namespace {

TEST(Os, RandomBytesFillTheWholeBuffer) {
  // More than macOS gives at once. That 32 bytes of them are zeros has a chance of 2^-256.
  std::array<unsigned char, 700> bytes{};
  ASSERT_TRUE(random_bytes(bytes.data(), bytes.size()));
  const std::array<unsigned char, 32> zeros{};
  EXPECT_NE(std::memcmp(bytes.data(), zeros.data(), zeros.size()), 0);
  EXPECT_NE(std::memcmp(bytes.data() + bytes.size() - zeros.size(), zeros.data(), zeros.size()), 0);
}

TEST(Os, RandomBytesGoOnAfterSignals) {
  // Linux ends a long draw early at a signal that has a handler.
  struct sigaction handled{}, kept{};
  handled.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGALRM, &handled, &kept), 0);
  std::vector<unsigned char> bytes(std::size_t{1} << 24);
  const itimerval often{{0, 500}, {0, 500}}, never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  const bool drawn = random_bytes(bytes.data(), bytes.size());
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &kept, nullptr);
  EXPECT_TRUE(drawn);
  const std::array<unsigned char, 32> zeros{};
  EXPECT_NE(std::memcmp(bytes.data() + bytes.size() - zeros.size(), zeros.data(), zeros.size()), 0);
}

TEST(Os, ProcessorsMemoryAndNameOfTheMachine) {
  EXPECT_GE(allowed_processors(), 1);
  EXPECT_GE(memory_size(), std::int64_t{1} << 24);
  EXPECT_EQ(host_system().name, "Linux");
  EXPECT_EQ(host_system().text(), host_system().name + " " + host_system().release + " " + host_system().machine);
}

TEST(Os, PipesThatWaitAndPipesThatDoNot) {
  int ends[2] = {-1, -1};
  char byte = 0;
  ASSERT_TRUE(open_pipe(ends, /*blocking=*/false));
  ASSERT_NE(::fcntl(ends[0], F_GETFL) & O_NONBLOCK, 0);  // else the read would wait for ever
  EXPECT_EQ(::read(ends[0], &byte, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  for (const int end : ends) ::close(end);

  ASSERT_TRUE(open_pipe(ends, /*blocking=*/true));
  std::thread writer([&] { EXPECT_EQ(::write(ends[1], "x", 1), 1); });
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  writer.join();
  for (const int end : ends) ::close(end);
}

TEST(Os, MemoryGrowsWithItsContentAndZeros) {
  constexpr std::size_t kBytes = 1 << 16;
  auto* memory = static_cast<unsigned char*>(map_memory(kBytes, /*reserved=*/true));
  ASSERT_NE(memory, nullptr);
  prefer_large_pages(memory, kBytes);
  EXPECT_EQ(memory[kBytes - 1], 0);
  memory[0] = 1;
  memory[kBytes - 1] = 2;
  memory = static_cast<unsigned char*>(grow_memory(memory, kBytes, 16 * kBytes));
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory[0], 1);
  EXPECT_EQ(memory[kBytes - 1], 2);
  EXPECT_EQ(memory[16 * kBytes - 1], 0);
  unmap_memory(memory, 16 * kBytes);
}

TEST(Os, NamesOfFilesBeginAfterTheLastSeparator) {
  EXPECT_EQ(file_name_at("model.gguf"), 0u);
  EXPECT_EQ(file_name_at("/model.gguf"), 1u);
  EXPECT_EQ(file_name_at("a/b/model.gguf"), 4u);
  EXPECT_EQ(file_name_at("a/"), 2u);
  EXPECT_EQ(file_name_at("C:\\model.gguf"), 0u);  // a name of one file, here
}

TEST(Os, TheDeviceThatSwallows) {
  struct stat status{};
  ASSERT_EQ(::stat("/dev/null", &status), 0);
  EXPECT_TRUE(is_null_device(status));
  ASSERT_EQ(::stat("/dev/zero", &status), 0);
  EXPECT_FALSE(is_null_device(status));
}

TEST(Os, TimesOfFiles) {
  const test::TempDir folder;
  const std::string path = folder / "file";
  std::ofstream(path) << "x";
  const timespec times[2] = {{1'000'000, 5}, {2'000'000, 7}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  struct stat status{};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(used_at(status), 1'000'000'000'000'005);
  EXPECT_EQ(modified_at(status), 2'000'000'000'000'007);
}

TEST(Os, WhatTheOtherEndOfASocketDoes) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const auto own = static_cast<std::uintptr_t>(ends[0]);
  EXPECT_EQ(peer_state(own), PeerState::kSends);
  const auto peer = peer_process(ends[0]);
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(peer->user, ::geteuid());
  EXPECT_EQ(peer->process, ::getpid());
  ASSERT_EQ(::shutdown(ends[1], SHUT_WR), 0);
  EXPECT_EQ(peer_state(own), PeerState::kEnded);
  ::close(ends[1]);
  EXPECT_EQ(peer_state(own), PeerState::kGone);
  ::close(ends[0]);
}

}  // namespace
}  // namespace dllm
