#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dllm {

/// Bytes that this process can still take without swapping: the system's available memory, or what the limits of its
/// control groups (v2 or v1) or of its address space (`ulimit -v`) leave, if that is less. nullopt: the system reports
/// none of them. `root`: where /proc and /sys are, for tests.
std::optional<std::int64_t> free_memory(const std::string& root = "");

}  // namespace dllm
