#pragma once

#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

/// The side of the sandbox that runs between clone() and exec: only system calls, on data prepared before.
namespace dllm::sandbox {

/// One entry of the file system visible to the program.
struct Entry {
  enum Kind { kDirectory, kFile, kLink, kBind } kind;  ///< kBind: mounts `source` read-only on a new file or directory
  std::string path;                                    ///< "/usr/lib"
  std::string source{};                                ///< of kBind: a path outside; of kLink: its content
};

/// The step that failed, in order of execution.
enum class SetupStage : int {
  kNone,
  kNamespaces,
  kIdentity,
  kMounts,
  kPrivileges,
  kDirectory,
  kLimits,
  kFilter,
  kStart,
};

/// The report of the sandbox's first process to its creator, sent once.
struct Report {
  SetupStage failed = SetupStage::kNone;
  int error = 0;            ///< errno of `failed`
  int test_status = -1;     ///< as of waitpid()
  int program_status = -1;  ///< the same; -1: still running
};

/// Everything that the child needs, made by the parent. Descriptors are the parent's.
struct Plan {
  bool isolated = true;
  std::vector<Entry> entries;
  std::string mount_options;   ///< of the directory in memory
  std::string directory;       ///< initial directory of the processes; inside, if isolated
  uid_t user = 0;              ///< inside, once everything is mounted
  bool several_users = false;  ///< whether the first user inside differs from `user`
  std::string python;
  const char* runner = nullptr;
  std::vector<sock_filter> filter;
  rlim_t memory = 0, cpu_seconds = 0, processes = 0;
  int go = -1;      ///< one byte: start; closed: stop
  int report = -1;  ///< a Report
  int verdict = -1;
  int program = -1, test = -1;  ///< sources
  int program_socket = -1, test_socket = -1;
  int null = -1;  ///< /dev/null
};

/// Main function of the first process. Never returns.
[[noreturn]] void run_child(const Plan& plan);

}  // namespace dllm::sandbox
