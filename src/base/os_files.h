#pragma once

#include <sys/stat.h>

// What differs between systems about files.

namespace dllm {

/// An unnamed pipe: the process at its other end is already running. False where the system does not tell.
bool is_anonymous_pipe(int fd);

/// The device that swallows what is written and has nothing to read.
bool is_null_device(const struct stat& status);

/// Renames within a directory unless `to` exists. -1 and errno: EEXIST, or EINVAL or ENOSYS where the file system or
/// the system has no such call.
int rename_new(int directory, const char* from, const char* to);

}  // namespace dllm
