#pragma once

#include <sys/stat.h>

#include <string>
#include <utility>

#include "dllm/error.h"

namespace dllm {

/// Owns a descriptor of the operating system; -1: none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

struct OpenFile {
  FileDescriptor descriptor;
  struct stat status{};
};

/// Opens a path for reading, whatever it leads to, and says what that is. Never waits for the writer of a named pipe
/// (the descriptor is non-blocking). Errors: kIo.
Expected<OpenFile> open_for_reading(const std::string& path);

}  // namespace dllm
