#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/system_error.h"
#include "base/try.h"

namespace dllm {

Expected<std::optional<FileLock>> FileLock::try_take(const std::string& path) {
  for (;;) {
    FileDescriptor descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (descriptor.get() < 0) return system_error("cannot be locked", errno, path);
    int locked = 0;
    while ((locked = ::flock(descriptor.get(), LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) {
    }
    if (locked != 0 && errno == EWOULDBLOCK) return std::optional<FileLock>();
    // The one that held it may have removed the file: then another is there, or none.
    struct stat own{}, there{};
    if (::fstat(descriptor.get(), &own) == 0 && ::stat(path.c_str(), &there) == 0 && own.st_dev == there.st_dev &&
        own.st_ino == there.st_ino)
      return std::optional(FileLock(std::move(descriptor)));
  }
}

Expected<FileLock> FileLock::take(const std::string& path, const std::function<bool()>& go_on) {
  for (;;) {
    DLLM_TRY(std::optional<FileLock> lock, try_take(path));
    if (lock) return *std::move(lock);
    if (!go_on()) return Error{ErrorCode::kCancelled, "stopped while another process holds the lock", path, ""};
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace dllm
