#include "eval/sandbox_python.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>

#include "base/try.h"

namespace dllm::sandbox {
namespace {

namespace fs = std::filesystem;

/// The first line is the interpreter, the others are directories. It imports the runner's modules, so that their
/// libraries are among the mapped ones.
constexpr const char* kQuestion = R"python(
import json, os, socket, sys, sysconfig, types
paths = sysconfig.get_paths()
found = {sys.base_prefix + '/lib', paths['stdlib'], paths['platstdlib'], os.path.dirname(os.path.realpath(sys.executable))}
for line in open('/proc/self/maps'):
    name = line.split(None, 5)[-1].strip()
    if name.startswith('/') and '.so' in name: found.add(os.path.dirname(os.path.realpath(name)))
print(os.path.realpath(sys.executable))
for one in sorted(found):
    if os.path.isdir(one): print(os.path.realpath(one))
)python";

/// Programs and libraries of the system, as far as they exist.
constexpr const char* kSystem[] = {"/usr", "/bin", "/lib", "/lib64", "/lib32", "/nix/store", "/gnu/store"};
constexpr const char* kDevices[] = {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"};

Error no_python(std::string what) {
  return {ErrorCode::kUnsupported, std::move(what), "PATH", "programs are judged by running them with python3"};
}

std::optional<std::string> in_path() {
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    const std::string candidate = std::string(rest.substr(0, colon)) + "/python3";
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.remove_prefix(colon == std::string_view::npos ? rest.size() : colon + 1);
  }
  return std::nullopt;
}

/// The output of a command; nullopt if it fails.
std::optional<std::string> output_of(const std::string& program, const char* code) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  char* const arguments[] = {const_cast<char*>(program.c_str()), const_cast<char*>("-I"), const_cast<char*>("-c"),
                             const_cast<char*>(code), nullptr};
  pid_t process = 0;
  const int failure = posix_spawn(&process, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; failure == 0 && (count = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  close(ends[0]);
  int status = -1;
  while (failure == 0 && waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (failure != 0 || status != 0) return std::nullopt;
  return text;
}

Expected<Python> ask() {
  const auto found = in_path();
  if (!found) return no_python("there is no python3");
  const auto answer = output_of(*found, kQuestion);
  if (!answer) return no_python("'" + *found + "' does not run");
  Python python;
  for (std::string_view rest = *answer; !rest.empty();) {
    const auto end = std::min(rest.find('\n'), rest.size());
    const std::string line(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (python.executable.empty())
      python.executable = line;
    else
      python.directories.push_back(line);
  }
  if (!python.executable.starts_with('/')) return no_python("'" + *found + "' does not say where it is");
  return python;
}

bool within(const std::string& path, const std::string& directory) {
  return path == directory || path.starts_with(directory == "/" ? directory : directory + "/");
}

class FileSystem {
 public:
  void system(const std::string& path) {
    std::error_code failure;
    const auto status = fs::symlink_status(path, failure);
    if (fs::is_symlink(status)) {
      parents(path);
      entries_.push_back({Entry::kLink, path, fs::read_symlink(path, failure).string()});
      covered_.push_back(path);
    } else if (fs::is_directory(status)) {
      directory(path);
    }
  }
  void directory(const std::string& path) {
    for (const std::string& known : covered_)
      if (within(path, known)) return;
    parents(path + "/");
    entries_.push_back({Entry::kBind, path, path});
    covered_.push_back(path);
  }
  void file(const std::string& path) {
    std::error_code failure;
    if (!fs::exists(path, failure)) return;
    parents(path);
    entries_.push_back({Entry::kFile, path});
    entries_.push_back({Entry::kBind, path, path});
  }
  std::vector<Entry> take() { return std::move(entries_); }

 private:
  /// Every directory before the last slash.
  void parents(const std::string& path) {
    for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
      if (std::string parent = path.substr(0, at); made_.insert(parent).second)
        entries_.push_back({Entry::kDirectory, std::move(parent)});
  }

  std::vector<Entry> entries_;
  std::vector<std::string> covered_;
  std::set<std::string> made_;
};

/// A directory with more than an interpreter in it: a home directory, or the root.
bool too_wide(const std::string& path) {
  const char* home = std::getenv("HOME");
  std::error_code failure;
  const std::string own = home == nullptr ? "" : fs::weakly_canonical(home, failure).string();
  return path == "/" || (!own.empty() && within(own, path)) || path == "/home" || path == "/root" || path == "/etc" ||
         path == "/var" || path == "/tmp" || within(path, "/proc") || within(path, "/sys") || within(path, "/dev");
}

}  // namespace

Expected<Python> find_python() {
  static std::mutex mutex;
  static std::optional<Python> known;  // querying takes as long as running a program
  const std::lock_guard lock(mutex);
  if (!known) {
    DLLM_TRY(known, ask());
  }
  return *known;
}

std::vector<Entry> file_system(const Python& python) {
  FileSystem result;
  for (const char* path : kSystem) result.system(path);
  result.file("/etc/ld.so.cache");
  // Outer ones first, so that those inside them are skipped.
  std::vector<std::string> directories = python.directories;
  std::sort(directories.begin(), directories.end());
  for (const std::string& path : directories)
    if (!too_wide(path)) result.directory(path);
  for (const char* path : kDevices) result.file(path);
  return result.take();
}

}  // namespace dllm::sandbox
