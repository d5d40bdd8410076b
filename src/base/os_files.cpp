#include "base/os_files.h"

#include <cerrno>
#include <cstdlib>
#if defined(__linux__)
#include <linux/magic.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#elif defined(__APPLE__)
#include <stdio.h>
#endif

namespace dllm {

#if defined(__linux__)

bool is_anonymous_pipe(int fd) {
  struct statfs system{};
  return ::fstatfs(fd, &system) == 0 && system.f_type == PIPEFS_MAGIC;
}

bool is_null_device(const struct stat& status) { return S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3); }

int rename_new(int directory, const char* from, const char* to) {
  return ::renameat2(directory, from, directory, to, RENAME_NOREPLACE);
}

#elif defined(_WIN32)

extern "C" int dllm_rename_new(int directory, const char* from, const char* to);  // os_windows/posix_files.cpp

bool is_anonymous_pipe(int /*fd*/) { return true; }  // those with names are in a file system of their own

bool is_null_device(const struct stat& status) { return S_ISCHR(status.st_mode) && status.st_rdev == 3; }

int rename_new(int directory, const char* from, const char* to) { return dllm_rename_new(directory, from, to); }

#else

bool is_anonymous_pipe(int /*fd*/) { return false; }

bool is_null_device(const struct stat& status) {
  struct stat null{};
  return S_ISCHR(status.st_mode) && ::stat("/dev/null", &null) == 0 && status.st_rdev == null.st_rdev;
}

#if defined(__APPLE__)
int rename_new(int directory, const char* from, const char* to) {
  return ::renameatx_np(directory, from, directory, to, RENAME_EXCL);
}
#else
int rename_new(int /*directory*/, const char* /*from*/, const char* /*to*/) {
  errno = ENOSYS;
  return -1;
}
#endif

#endif

#if defined(__APPLE__)
std::int64_t modified_at(const struct stat& status) {
  return std::int64_t{status.st_mtimespec.tv_sec} * 1'000'000'000 + status.st_mtimespec.tv_nsec;
}
std::int64_t used_at(const struct stat& status) {
  return std::int64_t{status.st_atimespec.tv_sec} * 1'000'000'000 + status.st_atimespec.tv_nsec;
}
#else
std::int64_t modified_at(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}
std::int64_t used_at(const struct stat& status) {
  return std::int64_t{status.st_atim.tv_sec} * 1'000'000'000 + status.st_atim.tv_nsec;
}
#endif

#if defined(_WIN32)
constexpr std::string_view kSeparators = "/\\:";  // "C:model.gguf" is in the current folder of that drive
#else
constexpr std::string_view kSeparators = "/";
#endif

std::size_t file_name_at(std::string_view path) { return path.find_last_of(kSeparators) + 1; }  // npos + 1 is 0

std::string user_cache_folder() {
#if defined(_WIN32)
  const char* const folder = std::getenv("LOCALAPPDATA");
  return folder == nullptr ? "" : folder;
#else
  return "";
#endif
}

}  // namespace dllm
