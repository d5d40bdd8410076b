#include "eval/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "base/system_error.h"
#include "base/try.h"
#include "eval/process_memory.h"
#include "eval/sandbox_child.h"
#include "eval/sandbox_directory.h"
#include "eval/sandbox_filter.h"
#include "eval/sandbox_python.h"
#include "eval/sandbox_runner.h"

namespace dllm {
namespace {

using sandbox::Plan;
using sandbox::Report;
using sandbox::SetupStage;

constexpr std::size_t kMostVerdict = 1 << 16;
constexpr uid_t kInsideUser = 1000;
/// ms between looks at the memory of all processes. Pages are cleared at a few GB/s, so what is allocated between two
/// looks is at most a few hundred MB.
constexpr long kMemoryStep = 20;
constexpr const char* kUnsafeHint =
    "--run-code=unsafe runs them without it: with your files, your network and your rights";

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { reset(); }
  int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

Expected<Descriptor> source_file(const std::string& text) {
  Descriptor file(memfd_create("dllm-program", MFD_CLOEXEC));
  if (file.get() < 0) return system_error("cannot create", errno, "memfd");
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t count = write(file.get(), rest.data(), rest.size());
    if (count <= 0) return system_error("cannot write", errno, "memfd");
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

Expected<std::array<Descriptor, 2>> pipe_ends() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot create", errno, "pipe");
  return std::array<Descriptor, 2>{Descriptor(ends[0]), Descriptor(ends[1])};
}

/// Whether the calling process's own namespace has `id`.
bool is_mapped(const char* map, std::uint64_t id) {
  std::ifstream file(map);
  for (std::uint64_t inner = 0, outer = 0, count = 0; file >> inner >> outer >> count;)
    if (id >= inner && id < inner + count) return true;
  return false;
}

/// A separate user for each sandbox, so that the kernel counts its processes; only root may assign one.
std::optional<std::uint64_t> spare_user(pid_t child) {
  if (geteuid() != 0) return std::nullopt;
  for (const std::uint64_t id : {std::uint64_t{0x60000000} + static_cast<std::uint64_t>(child), std::uint64_t{65534}})
    if (is_mapped("/proc/self/uid_map", id) && is_mapped("/proc/self/gid_map", id)) return id;
  return std::nullopt;
}

bool put(const std::string& path, const std::string& text) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file.get() >= 0 && write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

/// Maps the child's users. Setting up needs a user who may read the interpreter; running, one without any rights.
bool name_users(pid_t child, bool several) {
  const std::string place = fmt::format("/proc/{}/", child);
  if (several) {
    const std::string map = fmt::format("0 0 1\n{} {} 1\n", kInsideUser, *spare_user(child));
    return put(place + "uid_map", map) && put(place + "gid_map", map);
  }
  return put(place + "uid_map", fmt::format("{} {} 1\n", kInsideUser, geteuid())) && put(place + "setgroups", "deny") &&
         put(place + "gid_map", fmt::format("{} {} 1\n", kInsideUser, getegid()));
}

Error missing(SetupStage step, int code) {
  const auto what = [step] {
    switch (step) {
      case SetupStage::kNamespaces:
        return "namespaces of its own (user, PID, mount, network)";
      case SetupStage::kIdentity:
        return "an unprivileged user of its own";
      case SetupStage::kMounts:
        return "a file system of its own";
      case SetupStage::kPrivileges:
        return "the loss of all privileges";
      case SetupStage::kFilter:
        return "a filter of system calls (seccomp)";
      case SetupStage::kLimits:
        return "limits of memory, time and processes";
      case SetupStage::kDirectory:
      case SetupStage::kStart:
      case SetupStage::kNone:
        break;
    }
    return "a start of python3";
  }();
  return {ErrorCode::kUnsupported,
          fmt::format("this system does not grant the sandbox {}: {}", what, std::strerror(code)), "--run-code",
          kUnsafeHint};
}

/// The processes of one run, seen from outside.
class Run {
 public:
  Run(Plan& plan, const SandboxOptions& options)
      : plan_(plan), seconds_(options.seconds), memory_(options.total_memory_mb << 20) {}
  ~Run() { end(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Expected<SandboxResult> judge(Descriptor go, Descriptor report, Descriptor verdict, std::vector<Descriptor> theirs) {
    const unsigned long spaces =
        plan_.isolated ? CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS : 0;
    plan_.several_users = plan_.isolated && spare_user(getpid()).has_value();
    go_ = std::move(go);
    // A raw clone: fork() does not support namespaces. The copy only makes system calls.
    child_ = static_cast<pid_t>(syscall(SYS_clone, spaces | SIGCHLD, 0, 0, 0, 0));
    if (child_ == 0) {
      close(go_.get());  // otherwise the child would wait for itself
      sandbox::run_child(plan_);
    }
    if (child_ < 0) return missing(SetupStage::kNamespaces, errno);
    theirs.clear();
    if (plan_.isolated && !name_users(child_, plan_.several_users)) return missing(SetupStage::kIdentity, errno);
    if (write(go_.get(), "g", 1) != 1) return missing(SetupStage::kStart, errno);
    return collect(report.get(), verdict.get());
  }

 private:
  Expected<SandboxResult> collect(int report_fd, int verdict_fd) {
    using Clock = std::chrono::steady_clock;
    const auto deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
    std::string verdict;
    Report report;
    for (bool told = false; !told;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (left <= 0) return SandboxResult{false, "timeout"};
      if (processes_exceed(child_, memory_)) return SandboxResult{false, "too much memory in all processes together"};
      pollfd sources[] = {{report_fd, POLLIN, 0}, {verdict_fd, POLLIN, 0}};
      if (poll(sources, 2, static_cast<int>(std::min<long>(left, kMemoryStep))) < 0 && errno != EINTR)
        return system_error("cannot wait for the sandbox", errno, "poll");
      read_verdict(sources[1], verdict_fd, verdict);
      if (sources[0].revents == 0) continue;
      told = true;
      if (read(report_fd, &report, sizeof report) != static_cast<ssize_t>(sizeof report))
        return SandboxResult{false, "the sandbox was killed"};
    }
    end();
    pollfd rest{verdict_fd, POLLIN, 0};
    while (poll(&rest, 1, 0) > 0 && read_verdict(rest, verdict_fd, verdict)) {
    }
    if (report.failed != SetupStage::kNone) return missing(report.failed, report.error);
    return result(report, verdict);
  }

  /// False at the end.
  static bool read_verdict(const pollfd& source, int& fd, std::string& verdict) {
    if (source.revents == 0 || fd < 0) return false;
    char text[4096];
    const ssize_t count = read(fd, text, sizeof text);
    if (count <= 0) {
      fd = -1;  // poll() ignores it from now on
      return false;
    }
    if (verdict.size() < kMostVerdict) verdict.append(text, static_cast<std::size_t>(count));
    return true;
  }

  static SandboxResult result(const Report& report, const std::string& verdict) {
    constexpr std::string_view kFailed = "failed ";
    const int status = report.test_status;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && verdict == "passed") return {true, ""};
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && verdict.starts_with(kFailed))
      return {false, verdict.substr(kFailed.size())};
    const bool program = WIFEXITED(status) && WEXITSTATUS(status) == 3;
    const int ended = program ? report.program_status : status;
    const std::string who = program ? "" : "the test: ";
    if (ended >= 0 && WIFSIGNALED(ended)) return {false, fmt::format("{}killed by signal {}", who, WTERMSIG(ended))};
    if (ended >= 0 && WIFEXITED(ended) && WEXITSTATUS(ended) != 0)
      return {false, fmt::format("{}exit status {}", who, WEXITSTATUS(ended))};
    return {false, who + "ended early"};
  }

  /// When the first process of a PID namespace ends, the kernel kills all others. Without one, that process does it.
  void end() {
    if (child_ <= 0) return;
    go_.reset();
    if (!plan_.isolated)
      for (int waited = 0; waited < 3000 && waitpid(child_, nullptr, WNOHANG) == 0; waited += 5) poll(nullptr, 0, 5);
    kill(child_, SIGKILL);
    while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
    child_ = -1;
  }

  Plan& plan_;
  double seconds_;
  std::int64_t memory_;
  Descriptor go_;
  pid_t child_ = -1;
};

}  // namespace

Expected<SandboxResult> run_python(const std::string& program, const std::string& test, const SandboxOptions& options) {
  DLLM_TRY(const sandbox::Python python, sandbox::find_python());
  Plan plan;
  plan.isolated = !options.unsafe;
  if (plan.isolated) {
    DLLM_TRY(plan.filter, sandbox::forbidden_calls());
  }
  plan.python = python.executable;
  plan.runner = kSandboxRunner;
  plan.user = kInsideUser;
  plan.memory = static_cast<rlim_t>(options.memory_mb) << 20;
  plan.cpu_seconds = static_cast<rlim_t>(std::ceil(options.seconds)) + 1;
  plan.processes = static_cast<rlim_t>(options.processes) + 3;  // and the sandbox's own three
  plan.mount_options = fmt::format("mode=0777,size={}m,nr_inodes=4096", options.disk_mb);
  plan.directory = "/tmp";
  std::optional<sandbox::Directory> directory;
  if (options.unsafe) {
    DLLM_TRY(directory, sandbox::Directory::create());
    plan.directory = directory->path();
  } else {
    plan.entries = sandbox::file_system(python);
  }
  DLLM_TRY(auto go, pipe_ends());
  DLLM_TRY(auto report, pipe_ends());
  DLLM_TRY(auto verdict, pipe_ends());
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return system_error("cannot create", errno, "socket");
  std::vector<Descriptor> theirs;
  const auto hand_over = [&theirs](Descriptor descriptor) {
    theirs.push_back(std::move(descriptor));
    return theirs.back().get();
  };
  plan.program_socket = hand_over(Descriptor(ends[0]));
  plan.test_socket = hand_over(Descriptor(ends[1]));
  plan.go = hand_over(std::move(go[0]));
  plan.report = hand_over(std::move(report[1]));
  plan.verdict = hand_over(std::move(verdict[1]));
  DLLM_TRY(Descriptor program_file, source_file(program));
  DLLM_TRY(Descriptor test_file, source_file(test));
  plan.program = hand_over(std::move(program_file));
  plan.test = hand_over(std::move(test_file));
  plan.null = hand_over(Descriptor(open("/dev/null", O_RDWR | O_CLOEXEC)));
  return Run(plan, options).judge(std::move(go[1]), std::move(report[0]), std::move(verdict[0]), std::move(theirs));
}

}  // namespace dllm
