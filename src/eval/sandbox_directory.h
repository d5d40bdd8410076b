#pragma once
#include <string>

#include "dllm/error.h"

namespace dllm::sandbox {

/// A directory for one program that runs without a file system of its own (`--run-code=unsafe`), in the directory for
/// temporary files. It is removed with this object. If the process is killed before, the sandbox's first process
/// removes it; if that is killed, too, the next process that creates such a directory does: a lock on the directory
/// shows that its owner, or a process that the owner has started, lives.
class Directory {
 public:
  /// Errors: kIo, naming the path.
  static Expected<Directory> create();
  Directory(Directory&& other) noexcept;
  Directory& operator=(Directory&& other) noexcept;
  ~Directory();
  const std::string& path() const { return path_; }

 private:
  Directory(std::string path, int lock);
  std::string path_;
  int lock_ = -1;
};

}  // namespace dllm::sandbox
