#include "eval/sandbox.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace dllm {
namespace {

SandboxResult run(const std::string& program, SandboxLimits limits = {.seconds = 20}) {
  auto result = run_python(program, limits);
  EXPECT_TRUE(result) << result.error().message();
  return result ? *result : SandboxResult{};
}

class Sandbox : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto result = run_python(""); !result) GTEST_SKIP() << result.error().message();
  }
};

TEST_F(Sandbox, SaysWhetherTheLastLineWasReached) {
  EXPECT_TRUE(run("assert 1 + 1 == 2\n").finished);
  EXPECT_EQ(run("assert 1 + 1 == 3, 'no'\n").reason, "AssertionError: no");
  EXPECT_EQ(run("import sys\nsys.exit(0)\n").reason, "ended early");
  EXPECT_EQ(run("import os\nos._exit(0)\n").reason, "ended early");
  EXPECT_EQ(run("import sys\nsys.exit(3)\n").reason, "exit status 3");
  EXPECT_EQ(run("def f(:\n").reason.substr(0, 11), "SyntaxError");
  EXPECT_TRUE(run("print('x' * 1000000)\n").finished);
}

TEST_F(Sandbox, LimitsTimeAndMemory) {
  EXPECT_EQ(run("while True: pass\n", {.seconds = 0.3}).reason, "timeout");
  EXPECT_EQ(run("import time\ntime.sleep(60)\n", {.seconds = 0.3}).reason, "timeout");
  EXPECT_EQ(run("x = bytearray(1 << 30)\n", {.seconds = 20, .memory_mb = 256}).reason, "MemoryError");
  EXPECT_EQ(run("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n").reason, "killed by signal 15");
}

TEST_F(Sandbox, HasNoNetworkNoInputNoEnvironmentAndItsOwnFolder) {
  EXPECT_TRUE(run("import socket\ns = socket.socket()\ns.settimeout(5)\n"
                  "try:\n  s.connect(('127.0.0.1', 9))\n  raise SystemExit('connected')\n"
                  "except OSError as e:\n  assert e.errno == 101, e\n")  // network is unreachable: not even loopback
                  .finished);
  EXPECT_TRUE(run("import sys\nassert sys.stdin.read() == ''\n").finished);
  setenv("DLLM_SANDBOX_TEST", "secret", 1);  // a python3 that is a shell script adds variables of its own
  EXPECT_TRUE(run("import os\nassert not {'DLLM_SANDBOX_TEST', 'HOME'} & set(os.environ)\n").finished);
  unsetenv("DLLM_SANDBOX_TEST");
  EXPECT_TRUE(run("import os\nassert os.listdir('.') == ['program.py']\nopen('x', 'w').write('y')\n").finished);
}

TEST_F(Sandbox, LeavesNothingBehind) {
  // A folder of the test's own: other tests run programs at the same time.
  const auto own = std::filesystem::temp_directory_path() / ("dllm-sandbox-test-" + std::to_string(getpid()));
  std::filesystem::create_directory(own);
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("TMPDIR", own.c_str(), 1);
  run("open('left behind', 'w').write('x')\n");
  EXPECT_TRUE(std::filesystem::is_empty(own));
  before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", kept.c_str(), 1);
  std::filesystem::remove_all(own);
}

TEST_F(Sandbox, DoesNotWaitForChildrenOfTheProgram) {
  // The child keeps the output open for longer than the program may take.
  EXPECT_TRUE(run("import os, time\nif os.fork() == 0:\n  time.sleep(600)\n").finished);
}

}  // namespace
}  // namespace dllm
