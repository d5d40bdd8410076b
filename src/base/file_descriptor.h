#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>
#include <utility>

#include "dllm/error.h"

namespace dllm {

/// Owns a file descriptor; -1: none.
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

/// Opens a path of any kind for reading, and reports its kind. Never waits for the writer of a named pipe (the
/// descriptor is non-blocking). Errors: kIo.
Expected<OpenFile> open_for_reading(const std::string& path);

/// Writes all bytes. False: `errno` tells why (ENOSPC if the system takes none).
bool write_all(int descriptor, std::string_view bytes);

}  // namespace dllm
