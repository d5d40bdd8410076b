#include "base/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/system_error.h"

namespace dllm {

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Expected<OpenFile> open_for_reading(const std::string& path) {
  OpenFile file{FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY))};
  if (file.descriptor.get() < 0) return system_error("cannot open", errno, path);
  if (::fstat(file.descriptor.get(), &file.status) != 0) return system_error("cannot examine", errno, path);
  return file;
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    // Linux writes at most one page less than 2 GiB at once.
    const ssize_t written = ::write(descriptor, bytes.data(), std::min(bytes.size(), std::size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace dllm
