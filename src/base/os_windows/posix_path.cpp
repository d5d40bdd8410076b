#include "base/os_windows/posix_path.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>

#include <algorithm>

namespace dllm::windows {
namespace {

struct Meaning {
  DWORD error;
  int code;
};
constexpr Meaning kMeanings[] = {
    {ERROR_FILE_NOT_FOUND, ENOENT},
    {ERROR_PATH_NOT_FOUND, ENOENT},
    {ERROR_INVALID_NAME, ENOENT},
    {ERROR_BAD_NETPATH, ENOENT},
    {ERROR_BAD_PATHNAME, ENOENT},
    {ERROR_INVALID_DRIVE, ENOENT},
    {ERROR_NOT_READY, ENOENT},
    {ERROR_DIRECTORY, ENOTDIR},
    {ERROR_ACCESS_DENIED, EACCES},
    {ERROR_SHARING_VIOLATION, EACCES},
    {ERROR_USER_MAPPED_FILE, EACCES},
    {ERROR_PRIVILEGE_NOT_HELD, EPERM},
    {ERROR_WRITE_PROTECT, EROFS},
    {ERROR_FILE_EXISTS, EEXIST},
    {ERROR_ALREADY_EXISTS, EEXIST},
    {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},
    {ERROR_DISK_FULL, ENOSPC},
    {ERROR_HANDLE_DISK_FULL, ENOSPC},
    {ERROR_FILE_TOO_LARGE, EFBIG},
    {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},
    {ERROR_OUTOFMEMORY, ENOMEM},
    {ERROR_COMMITMENT_LIMIT, ENOMEM},
    {ERROR_NO_SYSTEM_RESOURCES, ENOMEM},
    {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
    {ERROR_LOCK_VIOLATION, EWOULDBLOCK},
    {ERROR_IO_PENDING, EWOULDBLOCK},
    {ERROR_INVALID_HANDLE, EBADF},
    {ERROR_INVALID_PARAMETER, EINVAL},
    {ERROR_INVALID_FUNCTION, ENOSYS},
    {ERROR_NOT_SUPPORTED, ENOSYS},
    {ERROR_CALL_NOT_IMPLEMENTED, ENOSYS},
    {ERROR_NOT_SAME_DEVICE, EXDEV},
    {ERROR_BROKEN_PIPE, EPIPE},
    {ERROR_NO_DATA, EPIPE},
    {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
};

}  // namespace

int fail(DWORD error) {
  const auto* const found = std::find_if(std::begin(kMeanings), std::end(kMeanings),
                                         [error](const Meaning& one) { return one.error == error; });
  errno = found == std::end(kMeanings) ? EIO : found->code;
  return -1;
}
int fail() { return fail(::GetLastError()); }

std::wstring wide(const char* utf8) {
  const int size = ::MultiByteToWideChar(CP_UTF8, 0, utf8, -1, nullptr, 0);
  std::wstring text(static_cast<std::size_t>(std::max(size, 1)), L'\0');
  ::MultiByteToWideChar(CP_UTF8, 0, utf8, -1, text.data(), size);
  text.pop_back();
  return text;
}

std::string narrow(const wchar_t* text) {
  const int size = ::WideCharToMultiByte(CP_UTF8, 0, text, -1, nullptr, 0, nullptr, nullptr);
  std::string utf8(static_cast<std::size_t>(std::max(size, 1)), '\0');
  ::WideCharToMultiByte(CP_UTF8, 0, text, -1, utf8.data(), size, nullptr, nullptr);
  utf8.pop_back();
  return utf8;
}

HANDLE handle_of(int fd) { return reinterpret_cast<HANDLE>(::_get_osfhandle(fd)); }

std::wstring path_of(int fd) {
  std::wstring path(MAX_PATH, L'\0');
  for (;;) {
    const DWORD size = ::GetFinalPathNameByHandleW(handle_of(fd), path.data(), static_cast<DWORD>(path.size()), 0);
    if (size == 0) return fail(), std::wstring();
    const bool whole = size < path.size();
    path.resize(size);
    if (whole) return path;
  }
}

std::wstring path_at(int directory, const char* name) {
  const std::wstring own = wide(name);
  const bool absolute = own.starts_with(L'/') || own.starts_with(L'\\') || (own.size() > 1 && own[1] == L':');
  if (directory == AT_FDCWD || absolute) return own;
  std::wstring path = path_of(directory);
  if (path.empty() || own == L".") return path;
  if (!path.ends_with(L'\\')) path += L'\\';
  path += own;
  std::replace(path.begin(), path.end(), L'/', L'\\');  // in a path of this form it would be part of a name
  return path;
}

}  // namespace dllm::windows
