#pragma once

#include <string>
#include <vector>

#include "dllm/error.h"
#include "eval/sandbox_child.h"

namespace dllm::sandbox {

/// An interpreter and the files that it reads.
struct Python {
  std::string executable;                ///< not a symbolic link, not a script that starts another
  std::vector<std::string> directories;  ///< of its modules and shared libraries, absolute
};

/// python3 of PATH, which is queried for its location once per process. Errors: kUnsupported.
Expected<Python> find_python();

/// The file system of a program: system programs and libraries, the interpreter, four devices; all read-only.
std::vector<Entry> file_system(const Python& python);

}  // namespace dllm::sandbox
