#include "base/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file_descriptor.h"
#include "base/os_files.h"
#include "base/system_error.h"
#include "base/try.h"

namespace dllm {
namespace {

Expected<void> check_kind(int fd, const struct stat& status, const std::string& path) {
  const mode_t mode = status.st_mode;
  if (S_ISREG(mode) || is_null_device(status) || (S_ISCHR(mode) && ::isatty(fd) == 1) ||
      (S_ISFIFO(mode) && is_anonymous_pipe(fd)))
    return {};
  const char* kind = S_ISDIR(mode)    ? "is a directory"
                     : S_ISFIFO(mode) ? "is a named pipe"
                     : S_ISSOCK(mode) ? "is a socket"
                                      : "is a device";
  return Error{ErrorCode::kIo, kind, path, S_ISDIR(mode) ? "" : "give a regular file"};
}

Expected<std::string> read_descriptor(int fd, std::size_t most, std::size_t expected, const std::string& path) {
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  std::string text;
  text.reserve(std::min(expected, most) + 1);
  for (;;) {
    const std::size_t had = text.size();
    text.resize(had + std::clamp<std::size_t>(text.capacity() - had, kPiece, std::size_t{1} << 24));
    const ssize_t count = ::read(fd, text.data() + had, text.size() - had);
    const int code = errno;
    text.resize(had + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0 && code == EINTR) continue;
    if (count < 0) return system_error("cannot read", code, path);
    if (text.size() > most)
      return Error{ErrorCode::kIo, fmt::format("has more than {} MB", most >> 20), path, "is it the right file?"};
    if (count == 0) return text;
  }
}

}  // namespace

Expected<std::string> read_input(const std::string& path, std::size_t most) {
  DLLM_TRY(const OpenFile file, open_for_reading(path));
  const int fd = file.descriptor.get();
  DLLM_CHECK_OK(check_kind(fd, file.status, path));
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) return system_error("cannot read", errno, path);
  return read_descriptor(fd, most, static_cast<std::size_t>(file.status.st_size), path);
}

Expected<std::string> read_beginning(const std::string& path, std::size_t count) {
  DLLM_TRY(const OpenFile file, open_for_reading(path));
  if (!S_ISREG(file.status.st_mode))
    return Error{ErrorCode::kIo, S_ISDIR(file.status.st_mode) ? "is a directory" : "not a regular file", path, ""};
  std::string text(count, '\0');
  const ssize_t got = ::pread(file.descriptor.get(), text.data(), count, 0);
  if (got < 0) return system_error("cannot read", errno, path);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

Expected<std::string> read_standard_input(std::size_t most) {
  return read_descriptor(STDIN_FILENO, most, 0, "standard input");
}

}  // namespace dllm
