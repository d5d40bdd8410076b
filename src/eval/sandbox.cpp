#include "eval/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/try.h"
#include "eval/answer_text.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

// What the child could not do, as its exit status. Python uses 0, 1, 2 and 120.
constexpr int kNoNamespace = 97, kNoPython = 98, kNoLimits = 99;
constexpr std::size_t kKeptOutput = 1 << 16;

class Directory {
 public:
  static Expected<Directory> create() {
    std::string path = (fs::temp_directory_path() / "dllm-sandbox-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) return Error{ErrorCode::kIo, std::strerror(errno), path, ""};
    return Directory(path);
  }
  Directory(Directory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Directory& operator=(Directory&&) = delete;
  ~Directory() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit Directory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

bool limit(int resource, rlim_t value) {
  const rlimit both{value, value};
  return setrlimit(static_cast<__rlimit_resource_t>(resource), &both) == 0;
}

/// Between fork and exec of a program with threads: async-signal-safe calls only.
[[noreturn]] void child(const char* directory, const char* python, int output, const SandboxLimits& limits,
                        rlim_t seconds) {
  setpgid(0, 0);
  // Root may make a network namespace at once; others inside a user namespace of their own.
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(kNoNamespace);
  const int null = open("/dev/null", O_RDONLY);
  if (chdir(directory) != 0 || null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0)
    _exit(kNoLimits);
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  if (!limit(RLIMIT_AS, static_cast<rlim_t>(limits.memory_mb) << 20) || !limit(RLIMIT_CPU, seconds) ||
      !limit(RLIMIT_FSIZE, 16 << 20) || !limit(RLIMIT_CORE, 0) || !limit(RLIMIT_NOFILE, 64))
    _exit(kNoLimits);
  limit(RLIMIT_NPROC, 64);  // counts the user's other processes too, and does not bind root
  char* const arguments[] = {const_cast<char*>(python), const_cast<char*>("-I"), const_cast<char*>("-B"),
                             const_cast<char*>("program.py"), nullptr};
  char* const environment[] = {nullptr};
  execve(python, arguments, environment);
  _exit(kNoPython);
}

Expected<std::string> find_python() {
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    const std::string candidate = std::string(rest.substr(0, colon)) + "/python3";
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.remove_prefix(colon == std::string_view::npos ? rest.size() : colon + 1);
  }
  return Error{ErrorCode::kUnsupported, "there is no python3", "PATH", "programs are judged by running them"};
}

bool has_ended(pid_t process) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == process;
}

/// What the program writes until it ends; false: the time was up first. Its own children may hold the pipe open after
/// it, and it may close the pipe before it ends, so both are watched.
bool collect(int fd, pid_t process, double seconds, std::string& text) {
  using Clock = std::chrono::steady_clock;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::array<char, 4096> buffer{};
  bool open = true;
  while (Clock::now() < deadline) {
    const bool ended = has_ended(process);
    pollfd wait{open ? fd : -1, POLLIN, 0};
    const int ready = poll(&wait, 1, ended ? 0 : 20);
    if (ready > 0) {
      const ssize_t count = read(fd, buffer.data(), buffer.size());
      open = count > 0;
      if (open) text.append(buffer.data(), static_cast<std::size_t>(count));
      if (text.size() > 2 * kKeptOutput) text.erase(0, text.size() - kKeptOutput);
    } else if (ended) {
      return true;
    }
  }
  return has_ended(process);
}

std::string last_line(std::string_view text) {
  text = strip_end(text);
  const auto newline = text.rfind('\n');
  return std::string(newline == std::string_view::npos ? text : text.substr(newline + 1)).substr(0, 200);
}

/// A word that a program cannot know, so that printing it proves nothing less than reaching the last line.
std::string nonce() {
  std::uint64_t value[2] = {};
  if (getrandom(value, sizeof value, 0) != static_cast<ssize_t>(sizeof value))
    value[0] = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return fmt::format("{:016x}{:016x}", value[0], value[1]);
}

}  // namespace

Expected<SandboxResult> run_python(const std::string& program, const SandboxLimits& limits) {
  DLLM_TRY(const std::string python, find_python());
  DLLM_TRY(const Directory directory, Directory::create());
  const std::string mark = nonce();
  {
    std::ofstream file(directory.path() + "/program.py", std::ios::binary);
    file << program << "\nprint(\"\\n" << mark << "\")\n";
    if (!file.flush()) return Error{ErrorCode::kIo, "cannot write", directory.path(), ""};
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Error{ErrorCode::kIo, std::strerror(errno), "pipe", ""};
  const auto cpu_seconds = static_cast<rlim_t>(std::ceil(limits.seconds)) + 1;
  const pid_t process = fork();
  if (process == 0) child(directory.path().c_str(), python.c_str(), ends[1], limits, cpu_seconds);
  close(ends[1]);
  if (process < 0) {
    close(ends[0]);
    return Error{ErrorCode::kResource, std::strerror(errno), "fork", ""};
  }
  setpgid(process, process);  // in both processes: whoever comes first
  std::string text;
  const bool ended = collect(ends[0], process, limits.seconds, text);
  close(ends[0]);
  kill(-process, SIGKILL);
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) return SandboxResult{false, "timeout"};
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == kNoNamespace)
    return Error{ErrorCode::kUnsupported, "this system lets no program be cut off from the network", "sandbox",
                 "run as root, or allow unprivileged user namespaces"};
  if (code == kNoPython || code == kNoLimits)
    return Error{ErrorCode::kUnsupported, "the sandbox cannot be set up", python, ""};
  if (WIFSIGNALED(status)) return SandboxResult{false, fmt::format("killed by signal {}", WTERMSIG(status))};
  if (code == 0 && last_line(text) == mark) return SandboxResult{true, ""};
  const std::string line = last_line(text);
  return SandboxResult{false, code == 0 ? "ended early" : line.empty() ? fmt::format("exit status {}", code) : line};
}

}  // namespace dllm
