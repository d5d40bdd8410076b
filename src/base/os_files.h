#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// What differs between systems about files.

namespace dllm {

/// An unnamed pipe: the process at its other end is already running. False where the system does not tell.
bool is_anonymous_pipe(int fd);

/// The device that swallows what is written and has nothing to read.
bool is_null_device(const struct stat& status);

/// Renames within a directory unless `to` exists. -1 and errno: EEXIST, or EINVAL or ENOSYS where the file system or
/// the system has no such call.
int rename_new(int directory, const char* from, const char* to);

/// The times of a file's last change and last use, in ns since 1970.
std::int64_t modified_at(const struct stat& status);
std::int64_t used_at(const struct stat& status);

/// open()'s mode of a directory in which files are only looked up by name.
#if defined(O_PATH)
inline constexpr int kSearchOnly = O_PATH;
#elif defined(O_SEARCH)
inline constexpr int kSearchOnly = O_SEARCH;
#else
inline constexpr int kSearchOnly = O_RDONLY;
#endif

/// Where the name of the file begins in a path: after the last separator.
std::size_t file_name_at(std::string_view path);

/// The variable of the environment that names the user's own folder.
#if defined(_WIN32)
inline constexpr const char* kHomeVariable = "USERPROFILE";
#else
inline constexpr const char* kHomeVariable = "HOME";
#endif

/// The folder that a variable of Windows names for files that can be made again; empty elsewhere, or if it is not set.
std::string user_cache_folder();

}  // namespace dllm
