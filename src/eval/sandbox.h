#pragma once

#include <cstdint>
#include <string>

#include "dllm/error.h"

namespace dllm {

struct SandboxLimits {
  double seconds = 10;           ///< wall clock; CPU time is limited to the next second above
  std::int64_t memory_mb = 512;  ///< address space
};

struct SandboxResult {
  bool finished = false;  ///< the program ran to its last line and said so
  std::string reason;     ///< otherwise: "timeout", "killed by signal 9", the last line of its error output
};

/// Runs a Python program with python3 of PATH in a process of its own: in an empty temporary directory that is removed
/// afterwards, with an empty environment, no standard input, no network (a network namespace without interfaces), no
/// core files, at most 16 MB per written file, 64 processes, and the given limits. It does see the file system with the
/// rights of the caller: this stops accidents, not attacks.
/// A program that ends early with exit status 0 has not finished: the runner appends a line that says so.
/// Errors: kUnsupported where namespaces are not allowed or there is no python3; kIo.
Expected<SandboxResult> run_python(const std::string& program, const SandboxLimits& limits = {});

}  // namespace dllm
