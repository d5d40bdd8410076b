#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/file_descriptor.h"
#include "dllm/error.h"

namespace dllm {

/// An exclusive lock on a file, which is made if it does not exist; held until destruction, or the end of the process
/// however it ends. On file systems without locks it is always given.
class FileLock {
 public:
  /// nullopt: another process or object holds it. Errors: kIo (the file cannot be made).
  static Expected<std::optional<FileLock>> try_take(const std::string& path);
  /// Waits while `go_on` returns true; it is asked about ten times a second. Errors: as above; kCancelled.
  static Expected<FileLock> take(const std::string& path, const std::function<bool()>& go_on);

 private:
  explicit FileLock(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}
  FileDescriptor descriptor_;
};

}  // namespace dllm
