#include "eval/sandbox_child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

// This code runs in a copy of a process that may have had threads: it allocates no memory and takes no lock.

namespace dllm::sandbox {
namespace {

/// /proc: a directory that every system has, and that the sandbox does not need.
constexpr const char* kRoot = "/proc";
constexpr int kStep = 5;  // ms between checks of the children

[[noreturn]] void give_up(const Plan& plan, SetupStage step, int error) {
  Report report;
  report.failed = step;
  report.error = error;
  if (write(plan.report, &report, sizeof report) < 0) _exit(2);
  _exit(1);
}

/// Paths are bounded: entries have at most PATH_MAX.
void inside(char* buffer, std::size_t size, const std::string& path) {
  const std::size_t root = std::strlen(kRoot), length = path.size() < size - root - 1 ? path.size() : size - root - 1;
  std::memcpy(buffer, kRoot, root);
  std::memcpy(buffer + root, path.data(), length);
  buffer[root + length] = '\0';
}

/// Read-only, including everything mounted below it; kernels before 5.12 support that for one mount only.
bool seal(const char* path) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID;
  if (syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &attributes, sizeof attributes) == 0) return true;
  return errno == ENOSYS && mount(nullptr, path, nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID, nullptr) == 0;
}

bool make(const Entry& entry) {
  char path[8192];
  inside(path, sizeof path, entry.path);
  switch (entry.kind) {
    case Entry::kDirectory:
      return mkdir(path, 0755) == 0 || errno == EEXIST;
    case Entry::kFile: {
      const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
      return fd >= 0 && close(fd) == 0;
    }
    case Entry::kLink:
      return symlink(entry.source.c_str(), path) == 0 || errno == EEXIST;
    case Entry::kBind:
      return mount(entry.source.c_str(), path, nullptr, MS_BIND | MS_REC, nullptr) == 0 && seal(path);
  }
  return false;
}

bool enter_file_system(const Plan& plan) {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  // No source is below kRoot, so hiding it loses nothing.
  if (mount("tmpfs", kRoot, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") != 0) return false;
  for (const Entry& entry : plan.entries)
    if (!make(entry)) return false;
  if (mkdir("/proc/tmp", 0755) != 0 || mkdir("/proc/.old", 0755) != 0 ||
      mount("tmpfs", "/proc/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, plan.mount_options.c_str()) != 0)
    return false;
  return chdir(kRoot) == 0 && syscall(SYS_pivot_root, ".", ".old") == 0 && chdir("/") == 0 &&
         umount2("/.old", MNT_DETACH) == 0 && rmdir("/.old") == 0 &&
         mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr) == 0;
}

bool drop_privileges(const Plan& plan) {
  if (plan.several_users &&
      (syscall(SYS_setgroups, 0, nullptr) != 0 || syscall(SYS_setresgid, plan.user, plan.user, plan.user) != 0 ||
       syscall(SYS_setresuid, plan.user, plan.user, plan.user) != 0))
    return false;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  if (!plan.isolated) return true;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  return syscall(SYS_capset, &header, none) == 0;
}

bool limit(int resource, rlim_t value) {
  const rlimit both{value, value};
  return setrlimit(static_cast<__rlimit_resource_t>(resource), &both) == 0;
}

bool set_limits(const Plan& plan) {
  // Without a user namespace, processes are counted for the whole user, and not at all for root.
  return limit(RLIMIT_AS, plan.memory) && limit(RLIMIT_CPU, plan.cpu_seconds) &&
         limit(RLIMIT_FSIZE, rlim_t{16} << 20) && limit(RLIMIT_CORE, 0) && limit(RLIMIT_NOFILE, 64) &&
         (!plan.isolated || limit(RLIMIT_NPROC, plan.processes));
}

/// Moves `from` to the number `to`. Sources have been moved out of the way first, see start().
bool place(int from, int to) { return dup2(from, to) == to; }

/// Becomes one of the two processes.
[[noreturn]] void start(const Plan& plan, const char* role, int source, int socket, bool verdict) {
  constexpr int kAbove = 32;  // above the numbers assigned below
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = fcntl(plan.null, F_DUPFD, kAbove), text = fcntl(source, F_DUPFD, kAbove),
            talk = fcntl(socket, F_DUPFD, kAbove), tell = fcntl(plan.verdict, F_DUPFD, kAbove),
            report = fcntl(plan.report, F_DUPFD_CLOEXEC, kAbove);
  if (!place(null, 0) || !place(null, 1) || !place(null, 2) || !place(text, 3) || !place(talk, 4) ||
      (verdict && !place(tell, 5)))
    give_up(plan, SetupStage::kStart, errno);
  Report failure;
  for (int fd = verdict ? 6 : 5; fd < 1024; ++fd)
    if (fd != report) close(fd);
  char* const arguments[] = {const_cast<char*>(plan.python.c_str()),
                             const_cast<char*>("-I"),
                             const_cast<char*>("-B"),
                             const_cast<char*>("-c"),
                             const_cast<char*>(plan.runner),
                             const_cast<char*>(role),
                             nullptr};
  char* const environment[] = {nullptr};
  if (!set_limits(plan)) {
    failure.failed = SetupStage::kLimits;
  } else {
    const sock_fprog program{static_cast<unsigned short>(plan.filter.size()),
                             const_cast<sock_filter*>(plan.filter.data())};
    if (plan.isolated && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) {
      failure.failed = SetupStage::kFilter;
    } else {
      execve(plan.python.c_str(), arguments, environment);
      failure.failed = SetupStage::kStart;
    }
  }
  failure.error = errno;
  if (write(report, &failure, sizeof failure) < 0) _exit(2);
  _exit(1);
}

pid_t begin(const Plan& plan, const char* role, int source, int socket, bool verdict) {
  // Not fork(): its handlers take locks that another thread of the original process may have held.
  const auto process = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (process == 0) start(plan, role, source, socket, verdict);
  if (process < 0) give_up(plan, SetupStage::kStart, errno);
  return process;
}

/// Kills the children of this process, including adopted ones, until none is left.
void end_descendants() {
  for (int round = 0; round < 200; ++round) {
    const int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    char text[4096];
    const ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (size <= 0) return;
    text[size] = '\0';
    for (char* at = text; *at != '\0';) {
      char* end = at;
      const long process = std::strtol(at, &end, 10);
      if (end == at) break;
      kill(static_cast<pid_t>(process), SIGKILL);
      at = *end == ' ' ? end + 1 : end;
    }
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    poll(nullptr, 0, 1);
  }
}

/// Empties a directory, as far as its files permit. std::filesystem would allocate memory.
void empty_directory(int directory, int depth) {
  struct Entry64 {  // linux_dirent64
    ino64_t inode;
    off64_t next;
    unsigned short size;
    unsigned char type;
    char name[1];
  };
  alignas(Entry64) char buffer[1024];
  // Removing entries may move others past the position of reading: until a whole pass has removed nothing.
  for (bool removed = true; removed;) {
    removed = false;
    lseek(directory, 0, SEEK_SET);
    for (long size = 0; (size = syscall(SYS_getdents64, directory, buffer, sizeof buffer)) > 0;)
      for (long at = 0; at < size; at += reinterpret_cast<const Entry64*>(buffer + at)->size) {
        const char* name = reinterpret_cast<const Entry64*>(buffer + at)->name;
        if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
        if (unlinkat(directory, name, 0) == 0) {
          removed = true;
          continue;
        }
        const int inner = depth > 0 ? openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (inner < 0) continue;
        empty_directory(inner, depth - 1);
        close(inner);
        removed |= unlinkat(directory, name, AT_REMOVEDIR) == 0;
      }
  }
}

/// Without a file system of its own: the caller may have been killed and cannot do it. It removes what is left here.
void remove_directory(const char* path) {
  constexpr int kDepth = 32;
  const int directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return;
  empty_directory(directory, kDepth);
  rmdir(path);
}

/// Waits for the test, and a little longer for the program if the test reports that it has ended.
void watch(const Plan& plan, pid_t program, pid_t test) {
  constexpr int kPatience = 400;  // ms
  Report report;
  int left = kPatience;
  while (report.test_status < 0 || (report.program_status < 0 && left > 0 && WIFEXITED(report.test_status) &&
                                    WEXITSTATUS(report.test_status) == 3)) {
    int status = 0;
    if (const pid_t ended = waitpid(-1, &status, WNOHANG); ended > 0) {
      if (ended == program) report.program_status = status;
      if (ended == test) report.test_status = status;
      continue;
    }
    pollfd go{plan.go, POLLIN, 0};
    if (poll(&go, 1, kStep) > 0 && go.revents != 0) break;  // the caller has enough, or has ended
    if (report.test_status >= 0) left -= kStep;
  }
  if (write(plan.report, &report, sizeof report) < 0) return;
}

}  // namespace

void run_child(const Plan& plan) {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  char byte = 0;
  if (read(plan.go, &byte, 1) != 1) _exit(1);  // our user is mapped now
  setsid();
  if (plan.isolated) {
    if (!enter_file_system(plan)) give_up(plan, SetupStage::kMounts, errno);
  } else {
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  }
  if (!drop_privileges(plan)) give_up(plan, SetupStage::kPrivileges, errno);
  if (chdir(plan.directory.c_str()) != 0) give_up(plan, SetupStage::kDirectory, errno);
  // A change of user clears this setting. If the caller has already ended, `go` is closed, which watch() detects.
  if (plan.isolated) prctl(PR_SET_PDEATHSIG, SIGKILL);
  const pid_t program = begin(plan, "program", plan.program, plan.program_socket, false);
  const pid_t test = begin(plan, "test", plan.test, plan.test_socket, true);
  // A process that has ended must leave no other holder of its socket.
  close(plan.program_socket);
  close(plan.test_socket);
  close(plan.verdict);
  watch(plan, program, test);
  if (!plan.isolated) {
    end_descendants();
    remove_directory(plan.directory.c_str());
  }
  _exit(0);
}

}  // namespace dllm::sandbox
