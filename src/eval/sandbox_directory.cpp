#include "eval/sandbox_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/system_error.h"

namespace dllm::sandbox {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSandboxPrefix = "dllm-sandbox-", kPattern = "XXXXXX";
constexpr int kMostAttempts = 100;

int open_directory(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/// Whether `path` still is the directory that `fd` refers to, and belongs to this user.
bool is_own(const std::string& path, int fd) {
  struct stat opened{}, named{};
  return fstat(fd, &opened) == 0 && lstat(path.c_str(), &named) == 0 && named.st_dev == opened.st_dev &&
         named.st_ino == opened.st_ino && opened.st_uid == geteuid();
}

void remove_of_dead_processes(const fs::path& place) {
  std::error_code error;
  for (fs::directory_iterator at(place, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.size() != kSandboxPrefix.size() + kPattern.size() || !name.starts_with(kSandboxPrefix)) continue;
    const int fd = open_directory(at->path().string());
    if (fd < 0) continue;
    std::error_code ignored;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_own(at->path().string(), fd)) fs::remove_all(at->path(), ignored);
    close(fd);
  }
}

}  // namespace

Directory::Directory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

Directory::Directory(Directory&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}

Directory& Directory::operator=(Directory&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  return *this;
}

Directory::~Directory() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

Expected<Directory> Directory::create() {
  std::error_code error;
  const fs::path place = fs::temp_directory_path(error);
  if (error) return system_error("cannot use the directory for temporary files", error.value(), place.string());
  remove_of_dead_processes(place);
  std::string path;
  // Another process may find the directory before it is locked, and remove it: then there is a next one.
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    path = (place / std::string(kSandboxPrefix).append(kPattern)).string();
    if (mkdtemp(path.data()) == nullptr) break;
    const int fd = open_directory(path);
    // A file system without locks: nothing is removed there, either.
    const bool locked = fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
    if (locked && is_own(path, fd)) return Directory(path, fd);
    if (fd >= 0) close(fd);
  }
  return system_error("cannot create", errno, path);
}

}  // namespace dllm::sandbox
