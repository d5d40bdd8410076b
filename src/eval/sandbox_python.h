#pragma once

#include <string>
#include <vector>

#include "dllm/error.h"
#include "eval/sandbox_child.h"

namespace dllm::sandbox {

/// An interpreter and what it reads.
struct Python {
  std::string executable;                ///< no symbolic link, no script that starts another
  std::vector<std::string> directories;  ///< of its modules and shared libraries, absolute
};

/// python3 of PATH, which is asked where it is; once per process. Errors: kUnsupported.
Expected<Python> find_python();

/// What a program sees: the system's programs and libraries, the interpreter, four devices; all read-only.
std::vector<Entry> file_system(const Python& python);

}  // namespace dllm::sandbox
