#include "base/os_files.h"

#include <cerrno>
#if defined(__linux__)
#include <linux/magic.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
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

#else

bool is_anonymous_pipe(int /*fd*/) { return false; }

bool is_null_device(const struct stat& /*status*/) { return false; }

int rename_new(int /*directory*/, const char* /*from*/, const char* /*to*/) {
  errno = ENOSYS;
  return -1;
}

#endif

}  // namespace dllm
