#include "eval/sandbox.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "eval/sandbox_directory.h"
#include "format/testing/test_files.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

SandboxResult run(const std::string& program, const std::string& test = "", SandboxOptions options = {.seconds = 60}) {
  auto result = run_python(program, test, options);
  EXPECT_TRUE(result) << result.error().message();
  return result ? *result : SandboxResult{};
}

/// Both modes if the system permits them; isolation is tested in the first only.
class Sandbox : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (const auto result = run_python("", "", options()); !result) GTEST_SKIP() << result.error().message();
  }
  SandboxOptions options(double seconds = 60) const { return {.seconds = seconds, .unsafe = GetParam()}; }
  SandboxResult run(const std::string& program, const std::string& test = "", double seconds = 60) const {
    return dllm::run(program, test, options(seconds));
  }
};

INSTANTIATE_TEST_SUITE_P(Forms, Sandbox, ::testing::Bool(),
                         [](const auto& form) { return form.param ? "Unsafe" : "Isolated"; });

TEST_P(Sandbox, SaysWhetherTheProgramReachedItsEnd) {
  EXPECT_TRUE(run("assert 1 + 1 == 2\n").passed);
  EXPECT_EQ(run("assert 1 + 1 == 3, 'no'\n").reason, "AssertionError: no");
  EXPECT_EQ(run("import sys\nsys.exit(0)\n").reason, "ended early");
  EXPECT_EQ(run("import os\nos._exit(0)\n").reason, "ended early");
  EXPECT_EQ(run("import sys\nsys.exit(3)\n").reason, "exit status 3");
  EXPECT_EQ(run("def f(:\n").reason.substr(0, 11), "SyntaxError");
  EXPECT_EQ(run("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n").reason, "killed by signal 15");
  EXPECT_TRUE(run("print('x' * 1000000)\n").passed);
}

TEST_P(Sandbox, TheTestCallsTheProgram) {
  const std::string program =
      "import math\nscale = [2, 3.5]\n"
      "def same(*a, **k): return a[0] if a else k\n"
      "def push(x): x.append(1)\n"
      "def fails(): raise KeyError('k')\n"
      "def odd(): return object()\n"
      "def ends(): import os; os._exit(0)\n";
  EXPECT_TRUE(run(program,
                  "for x in (None, True, -1, 10 ** 5000, 1.5, float('inf'), 'a\\n', b'\\0', 1j, [1, [2]], (1, (2,)),\n"
                  "          {1, 2}, frozenset(), {'a': {(1, 2): [3]}}, [], {}, ()):\n"
                  "  y = same(x)\n"
                  "  assert type(y) is type(x) and y == x, (x, y)\n"
                  "assert math.isnan(same(math.nan)) if 'math' in globals() else True\n"
                  "assert same(a=1) == {'a': 1} and scale == [2, 3.5]\n"
                  "x = []\npush(x)\nassert x == [1]\n"
                  "try: fails()\nexcept KeyError: pass\nelse: assert False\n")
                  .passed);
  EXPECT_EQ(run(program, "assert same(1) == 2, 'unequal'").reason, "AssertionError: unequal");
  EXPECT_EQ(run(program, "odd()").reason, "TypeError: a object cannot be handed to the test");
  EXPECT_EQ(run(program, "ends()").reason, "ended early");
  EXPECT_EQ(run(program, "missing()").reason.substr(0, 9), "NameError");
}

// The verdict comes from a process that the program cannot reach.
TEST_P(Sandbox, TheVerdictIsOutOfReach) {
  const std::string test = "assert f() == 1";
  EXPECT_FALSE(run("import os\nos.write(3, b'passed')\nos._exit(0)\n", test).passed);
  EXPECT_FALSE(run("import os\nfor fd in range(3, 64):\n  try: os.write(fd, b'passed')\n  except OSError: pass\n"
                   "os._exit(0)\n",
                   test)
                   .passed);
  EXPECT_FALSE(run("class Any:\n  def __eq__(self, other): return True\ndef f(): return Any()\n", test).passed);
  EXPECT_FALSE(run("import sys\nfor n in range(9):\n  try: names = sys._getframe(n).f_globals\n  except ValueError: "
                   "break\n  names['AssertionError'] = names['Failed'] = ValueError\ndef f(): return 2\n",
                   test)
                   .passed);
  EXPECT_FALSE(run("import builtins\nbuiltins.print = builtins.compile = None\ndef f(): return 2\n", test).passed);
}

TEST_P(Sandbox, LimitsTimeAndMemory) {
  EXPECT_EQ(run("while True: pass\n", "", 0.5).reason, "timeout");
  EXPECT_EQ(run("import time\ntime.sleep(60)\n", "", 0.5).reason, "timeout");
  EXPECT_EQ(run("def f():\n  while True: pass\n", "f()", 0.5).reason, "timeout");
  EXPECT_EQ(dllm::run("x = bytearray(1 << 30)\n", "", {.seconds = 60, .memory_mb = 256, .unsafe = GetParam()}).reason,
            "MemoryError");
  EXPECT_EQ(run("open('x', 'wb').write(bytes(1 << 25))\n").reason.substr(0, 7), "OSError");
}

TEST_P(Sandbox, LimitsTheMemoryOfAllProcessesTogether) {
  // The parent goes on when every child holds its memory, however slow the machine is.
  const auto fork = [](const std::string& before, const std::string& inside, const std::string& after) {
    return dllm::run("import os, time\nends = os.pipe()\n" + before +
                         "\nfor _ in range(5):\n  if os.fork() == 0:\n    " + inside +
                         "\n    os.write(ends[1], b'.')\n    time.sleep(60)\n    os._exit(0)\n"
                         "for _ in range(5): os.read(ends[0], 1)\n" +
                         after,
                     "", {.seconds = 60, .memory_mb = 256, .total_memory_mb = 256, .unsafe = GetParam()});
  };
  EXPECT_EQ(fork("", "x = bytearray(100 << 20)", "time.sleep(60)").reason, "too much memory in all processes together");
  EXPECT_TRUE(fork("x = bytearray(100 << 20)", "x[0]", "time.sleep(0.3)").passed);  // pages that the processes share
}

TEST_P(Sandbox, HasNoInputAndNoEnvironment) {
  setenv("DLLM_SANDBOX_TEST", "secret", 1);
  EXPECT_TRUE(run("import os, sys\nassert not {'DLLM_SANDBOX_TEST', 'HOME'} & set(os.environ)\n"
                  "assert sys.stdin.read() == '' and os.listdir('.') == []\nopen('x', 'w').write('y')\n")
                  .passed);
  unsetenv("DLLM_SANDBOX_TEST");
}

/// Processes of this machine whose command line contains the mark.
int processes_with(const std::string& mark) {
  int count = 0;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator("/proc", failure)) {
    // A process that ends meanwhile is an error of reading (ESRCH), which `<<` keeps in the state of the stream. An
    // iterator over its buffer would throw it.
    std::ostringstream text;
    text << std::ifstream(entry.path() / "cmdline").rdbuf();
    count += text.str().find(mark) != std::string::npos ? 1 : 0;
  }
  return count;
}

std::string sleeper(const std::string& mark) {
  return "import os, sys, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n"
         "    os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(600) #" +
         mark + "'])\n  os._exit(0)\ntime.sleep(0.3)\n";
}

/// A directory for temporary files of one test's own.
class OwnTemporary {
 public:
  OwnTemporary() {
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    setenv("TMPDIR", (path_ / "").c_str(), 1);
  }
  ~OwnTemporary() { before_ ? setenv("TMPDIR", before_->c_str(), 1) : unsetenv("TMPDIR"); }
  std::size_t entries() const { return path_.entries(); }

 private:
  test::TempDir path_;
  std::optional<std::string> before_;
};

TEST_P(Sandbox, EverythingEndsWithTheVerdict) {
  const std::string mark = "mark-" + std::to_string(getpid());
  EXPECT_TRUE(run(sleeper(mark)).passed);
  EXPECT_EQ(processes_with(mark), 0);
}

TEST_P(Sandbox, EverythingEndsWithTheEvaluator) {
  const OwnTemporary temporary;
  const std::string mark = "late-" + std::to_string(getpid());
  const pid_t evaluator = fork();
  if (evaluator == 0) {
    run("import os\nos.makedirs('a/b')\nfor i in range(99):\n  open(f'a/b/{i}', 'w').write('x')\n" + sleeper(mark) +
            "time.sleep(600)\n",
        "", 600);
    _exit(0);
  }
  for (int i = 0; i < 1000 && processes_with(mark) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(evaluator, SIGKILL);
  waitpid(evaluator, nullptr, 0);
  int left = 1;
  for (int i = 0; i < 1000 && left > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    left = processes_with(mark);
  }
  EXPECT_EQ(left, 0);
  for (int i = 0; i < 1000 && temporary.entries() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(temporary.entries(), 0U);
}

/// A process that has created a directory for a program and waits.
class Owner {
 public:
  Owner() {
    int ready[2];
    if (pipe(ready) != 0) return;
    process_ = fork();
    if (process_ == 0) {
      const auto directory = sandbox::Directory::create();
      if (directory && write(ready[1], "1", 1) == 1) pause();
      _exit(0);
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
  }
  ~Owner() { end(); }
  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(std::exchange(process_, -1), nullptr, 0);
  }

 private:
  pid_t process_ = -1;
};

TEST(SandboxDirectory, OfADeadProcessIsRemovedByTheNextOne) {
  const OwnTemporary temporary;
  Owner owner;
  EXPECT_EQ(temporary.entries(), 1U);
  EXPECT_TRUE(sandbox::Directory::create());
  EXPECT_EQ(temporary.entries(), 1U);  // its owner lives
  owner.end();
  EXPECT_EQ(temporary.entries(), 1U);
  EXPECT_TRUE(sandbox::Directory::create());
  EXPECT_EQ(temporary.entries(), 0U);
}

TEST_P(Sandbox, LeavesNothingBehind) {
  const OwnTemporary temporary;
  run("open('left behind', 'w').write('x')\n");
  EXPECT_EQ(temporary.entries(), 0U);
}

/// Properties that only namespaces provide.
class Isolation : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto result = run_python("", ""); !result) GTEST_SKIP() << result.error().message();
  }
};

TEST_F(Isolation, HasNoNetwork) {
  EXPECT_EQ(run("import socket\ns = socket.socket()\ns.settimeout(5)\ns.connect(('127.0.0.1', 9))\n").reason,
            "OSError: [Errno 101] Network is unreachable");  // not even loopback
  EXPECT_EQ(run("import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW)\n").reason.substr(0, 7), "OSError");
}

TEST_F(Isolation, SeesNoFilesOfOthers) {
  const auto own = fs::temp_directory_path() / ("dllm-secret-" + std::to_string(getpid()));
  std::ofstream(own) << "secret";
  fs::permissions(own, fs::perms(0666));
  EXPECT_EQ(run("open('" + own.string() + "')\n").reason.substr(0, 17), "FileNotFoundError");
  EXPECT_TRUE(run("import os\nassert set(os.listdir('/')) <= {'bin', 'dev', 'etc', 'gnu', 'lib', 'lib32', 'lib64',"
                  "  'nix', 'opt', 'proc', 'root', 'home', 'tmp', 'usr'}, os.listdir('/')\n"
                  "assert os.listdir('/etc') in ([], ['ld.so.cache'])\n"
                  "assert not os.path.exists('/proc/self')\n")
                  .passed);
  for (const char* path : {"/x", "/usr/x", "/dev/x", "/etc/x"})
    EXPECT_FALSE(run("open('" + std::string(path) + "', 'w')\n").passed) << path;
  fs::remove(own);
}

TEST_F(Isolation, IsAnUnprivilegedUserWithoutSight) {
  EXPECT_TRUE(run("import os\nassert os.getuid() and os.getgid() and os.geteuid()\n"
                  "assert os.getppid() in (0, 1)\n"
                  "for pid in (1, os.getppid()):\n"
                  "  try: os.kill(pid, 9)\n  except OSError: pass\n")
                  .passed);
  const SandboxResult calls =
      run("import ctypes, os\nc = ctypes.CDLL(None, use_errno=True)\n"
          "for flags in (0x10000000, 0x20000000, 0x40000000, 0x00020000):\n"
          "  assert c.unshare(flags) == -1\n"
          "assert c.setns(0, 0) == -1 and c.mount(b'x', b'/tmp', b'tmpfs', 0, None) == -1\n"
          "assert c.ptrace(16, os.getppid(), 0, 0) == -1 and c.chroot(b'/tmp') == -1 and c.setuid(0) == -1\n");
  EXPECT_TRUE(calls.passed || calls.reason.starts_with("ModuleNotFoundError")) << calls.reason;
}

TEST_F(Isolation, GrantsNoMemoryThatBelongsToNoProcess) {
  const SandboxResult calls =
      run("import ctypes, os\nc = ctypes.CDLL(None, use_errno=True)\n"
          "assert c.shmget(0, 1 << 20, 0o1600) == -1 and c.msgget(0, 0o1600) == -1 and c.semget(0, 1, 0o1600) == -1\n"
          "assert c.memfd_create(b'x', 0) == -1\n");
  EXPECT_TRUE(calls.passed || calls.reason.starts_with("ModuleNotFoundError")) << calls.reason;
}

TEST_F(Isolation, CountsProcessesAndDisk) {
  EXPECT_EQ(run("import os, time\nfor i in range(200):\n  if os.fork() == 0:\n    time.sleep(60)\n    os._exit(0)\n")
                .reason.substr(0, 15),
            "BlockingIOError");
  EXPECT_EQ(run("for i in range(200):\n  open(str(i), 'wb').write(bytes(1 << 20))\n").reason,
            "OSError: [Errno 28] No space left on device");
}

}  // namespace
}  // namespace dllm
