#include "base/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

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

}  // namespace dllm
