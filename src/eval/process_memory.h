#pragma once

#include <sys/types.h>

#include <cstdint>

namespace dllm {

/// Whether a process and all its descendants occupy more than `bytes` of memory together. Pages that several of them
/// share count once where the system tells (proportional set size, Linux 4.14), else once for each. What cannot be read
/// counts as nothing.
bool processes_exceed(pid_t root, std::int64_t bytes);

}  // namespace dllm
