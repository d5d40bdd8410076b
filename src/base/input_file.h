#pragma once

#include <cstddef>
#include <string>

#include "dllm/error.h"

namespace dllm {

/// Larger than any configuration, tokenizer, program or evaluation set.
inline constexpr std::size_t kMostFileBytes = std::size_t{256} << 20;
/// Larger than any prompt that fits into a context.
inline constexpr std::size_t kMostTextBytes = std::size_t{64} << 20;

/// Reads a whole text file: a regular file, or a source that cannot block forever: an unnamed pipe (a shell's <(...)),
/// a terminal, /dev/null. Named pipes, devices, sockets and directories are refused. Errors: kIo (missing, refused,
/// more than `most` bytes).
Expected<std::string> read_input(const std::string& path, std::size_t most = kMostFileBytes);

/// The first bytes of a regular file, at most `count`. Errors: kIo (missing, no regular file).
Expected<std::string> read_beginning(const std::string& path, std::size_t count);

/// Descriptor 0 to its end. Errors: kIo (closed, unreadable, more than `most` bytes).
Expected<std::string> read_standard_input(std::size_t most = kMostTextBytes);

}  // namespace dllm
