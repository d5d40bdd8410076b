// Files: POSIX' calls by those of Windows. Every file is opened so that others may read, write, replace and remove it
// meanwhile, as everywhere else; locks are what keeps processes apart.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/os_windows/posix_path.h"

using dllm::windows::fail;
using dllm::windows::handle_of;
using dllm::windows::path_at;
using dllm::windows::path_of;

namespace {

constexpr DWORD kShared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

/// Closes itself.
struct Opened {
  HANDLE handle = INVALID_HANDLE_VALUE;
  explicit Opened(HANDLE of) : handle(of) {}
  ~Opened() {
    if (handle != INVALID_HANDLE_VALUE) ::CloseHandle(handle);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  bool failed() const { return handle == INVALID_HANDLE_VALUE; }
};

HANDLE open_existing(const std::wstring& path, DWORD access, bool follow) {
  return ::CreateFileW(path.c_str(), access, kShared, nullptr, OPEN_EXISTING,
                       FILE_FLAG_BACKUP_SEMANTICS | (follow ? 0 : FILE_FLAG_OPEN_REPARSE_POINT), nullptr);
}

timespec time_of(const FILETIME& time) {
  constexpr std::int64_t kTo1970 = 116'444'736'000'000'000;  // in 100 ns
  const std::int64_t ticks = (std::int64_t{time.dwHighDateTime} << 32 | time.dwLowDateTime) - kTo1970;
  timespec result{};
  result.tv_sec = ticks / 10'000'000;
  result.tv_nsec = static_cast<long>(ticks % 10'000'000 * 100);
  return result;
}

int examine(HANDLE handle, struct stat& status) {
  status = {};
  const DWORD type = ::GetFileType(handle);
  if (type == FILE_TYPE_CHAR || type == FILE_TYPE_PIPE) {
    DWORD mode = 0;
    status.st_mode = (type == FILE_TYPE_CHAR ? S_IFCHR : S_IFIFO) | 0600;
    status.st_rdev = ::GetConsoleMode(handle, &mode) != 0 ? 1 : 3;
    return 0;
  }
  BY_HANDLE_FILE_INFORMATION found{};
  if (::GetFileInformationByHandle(handle, &found) == 0) return fail();
  FILE_STANDARD_INFO sizes{};
  ::GetFileInformationByHandleEx(handle, FileStandardInfo, &sizes, sizeof sizes);
  const DWORD kind = found.dwFileAttributes;
  FILE_ATTRIBUTE_TAG_INFO tag{};
  const bool link = (kind & FILE_ATTRIBUTE_REPARSE_POINT) != 0 &&
                    ::GetFileInformationByHandleEx(handle, FileAttributeTagInfo, &tag, sizeof tag) != 0 &&
                    tag.ReparseTag == IO_REPARSE_TAG_SYMLINK;
  status.st_dev = found.dwVolumeSerialNumber;
  status.st_ino = std::uint64_t{found.nFileIndexHigh} << 32 | found.nFileIndexLow;
  status.st_mode = link ? S_IFLNK | 0700 : (kind & FILE_ATTRIBUTE_DIRECTORY) != 0 ? S_IFDIR | 0700 : S_IFREG | 0600;
  status.st_size = std::int64_t{found.nFileSizeHigh} << 32 | found.nFileSizeLow;
  status.st_blocks = (sizes.AllocationSize.QuadPart + 511) / 512;
  status.st_atim = time_of(found.ftLastAccessTime);
  status.st_mtim = time_of(found.ftLastWriteTime);
  return 0;
}

int examine_path(int directory, const char* path, struct stat* status, bool follow) {
  const std::wstring at = path_at(directory, path);
  if (at.empty()) return -1;
  const Opened file(open_existing(at, FILE_READ_ATTRIBUTES, follow));
  return file.failed() ? fail() : examine(file.handle, *status);
}

DWORD disposition(int flags) {
  if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) return CREATE_NEW;
  if ((flags & O_CREAT) != 0) return (flags & O_TRUNC) != 0 ? CREATE_ALWAYS : OPEN_ALWAYS;
  return (flags & O_TRUNC) != 0 ? TRUNCATE_EXISTING : OPEN_EXISTING;
}

int open_path(const std::wstring& path, int flags) {
  const int mode = flags & O_ACCMODE;
  const DWORD access = mode == O_RDONLY   ? GENERIC_READ
                       : mode == O_WRONLY ? GENERIC_WRITE | FILE_READ_ATTRIBUTES
                                          : GENERIC_READ | GENERIC_WRITE;
  const DWORD how = FILE_ATTRIBUTE_NORMAL | FILE_FLAG_BACKUP_SEMANTICS |
                    ((flags & O_NOFOLLOW) != 0 ? FILE_FLAG_OPEN_REPARSE_POINT : 0);
  const HANDLE handle = ::CreateFileW(path.c_str(), access, kShared, nullptr, disposition(flags), how, nullptr);
  if (handle == INVALID_HANDLE_VALUE) return fail();
  struct stat status{};
  int code = examine(handle, status) != 0 ? errno : 0;
  if (code == 0 && S_ISLNK(status.st_mode)) code = ELOOP;
  if (code == 0 && S_ISDIR(status.st_mode) && mode != O_RDONLY) code = EISDIR;
  if (code == 0 && !S_ISDIR(status.st_mode) && (flags & O_DIRECTORY) != 0) code = ENOTDIR;
  if (code == 0) {
    const int fd = ::_open_osfhandle(reinterpret_cast<intptr_t>(handle),
                                     (flags & (O_APPEND | _O_NOINHERIT)) | (mode == O_RDONLY ? _O_RDONLY : 0));
    if (fd >= 0) return fd;
    code = errno;
  }
  ::CloseHandle(handle);
  errno = code;
  return -1;
}

/// FILE_RENAME_INFO with a name.
int rename_by_handle(const std::wstring& from, const std::wstring& to, bool replace) {
  const Opened file(open_existing(from, DELETE | SYNCHRONIZE, false));
  if (file.failed()) return fail();
  std::string bytes(sizeof(FILE_RENAME_INFO) + to.size() * sizeof(wchar_t), '\0');
  auto* const info = reinterpret_cast<FILE_RENAME_INFO*>(bytes.data());
  constexpr DWORD kReplace = 1, kPosix = 2;  // FILE_RENAME_FLAG_*
  info->Flags = kPosix | (replace ? kReplace : 0);
  info->FileNameLength = static_cast<DWORD>(to.size() * sizeof(wchar_t));
  std::copy(to.begin(), to.end(), info->FileName);
  constexpr auto kRenameEx = static_cast<FILE_INFO_BY_HANDLE_CLASS>(22);
  return ::SetFileInformationByHandle(file.handle, kRenameEx, info, static_cast<DWORD>(bytes.size())) != 0 ? 0 : fail();
}

/// Readers see the old content or the new at every moment. Windows 10 has POSIX' rename for its own file systems, also
/// where the target is open; older systems and others have ReplaceFile(), which refuses that, and keeps the target's
/// lists of users. MoveFileEx() is for what has neither, or where the target is missing.
int rename_path(const std::wstring& from, const std::wstring& to, bool replace) {
  if (!replace) return ::MoveFileExW(from.c_str(), to.c_str(), MOVEFILE_WRITE_THROUGH) != 0 ? 0 : fail();
  if (rename_by_handle(from, to, true) == 0) return 0;
  constexpr DWORD kHow = REPLACEFILE_IGNORE_MERGE_ERRORS | REPLACEFILE_IGNORE_ACL_ERRORS;
  if (::ReplaceFileW(to.c_str(), from.c_str(), nullptr, kHow, nullptr, nullptr) != 0) return 0;
  return ::MoveFileExW(from.c_str(), to.c_str(), MOVEFILE_WRITE_THROUGH | MOVEFILE_REPLACE_EXISTING) != 0 ? 0 : fail();
}

/// The name is free at once, also while others have the file open; DeleteFile() keeps it until they close it.
int remove_path(const std::wstring& path) {
  {
    const Opened file(open_existing(path, DELETE | SYNCHRONIZE, false));
    if (file.failed()) return fail();
    ULONG how = 1 | 2 | 16;  // FILE_DISPOSITION_DELETE, _POSIX_SEMANTICS, _IGNORE_READONLY_ATTRIBUTE
    constexpr auto kDispositionEx = static_cast<FILE_INFO_BY_HANDLE_CLASS>(21);
    if (::SetFileInformationByHandle(file.handle, kDispositionEx, &how, sizeof how) != 0) return 0;
  }
  return ::DeleteFileW(path.c_str()) != 0 ? 0 : fail();
}

OVERLAPPED place(off_t at) {
  OVERLAPPED result{};
  result.Offset = static_cast<DWORD>(at);
  result.OffsetHigh = static_cast<DWORD>(static_cast<std::uint64_t>(at) >> 32);
  return result;
}

}  // namespace

extern "C" {

int openat(int directory, const char* path, int flags, ...) {
  const std::wstring at = path_at(directory, path);
  return at.empty() ? -1 : open_path(at, flags);
}
int open(const char* path, int flags, ...) {
  return open_path(dllm::windows::wide(std::string_view(path) == "/dev/null" ? "NUL" : path), flags);
}

int stat(const char* path, struct stat* status) { return examine_path(AT_FDCWD, path, status, true); }
int lstat(const char* path, struct stat* status) { return examine_path(AT_FDCWD, path, status, false); }
int fstat(int fd, struct stat* status) { return examine(handle_of(fd), *status); }
int fstatat(int directory, const char* path, struct stat* status, int flags) {
  return examine_path(directory, path, status, (flags & AT_SYMLINK_NOFOLLOW) == 0);
}

int unlinkat(int directory, const char* path, int /*flags*/) {
  const std::wstring at = path_at(directory, path);
  return at.empty() ? -1 : remove_path(at);
}
int unlink(const char* path) { return unlinkat(AT_FDCWD, path, 0); }

int renameat(int from_directory, const char* from, int to_directory, const char* to) {
  const std::wstring source = path_at(from_directory, from), target = path_at(to_directory, to);
  return source.empty() || target.empty() ? -1 : rename_path(source, target, true);
}
int dllm_rename_new(int directory, const char* from, const char* to) {
  const std::wstring source = path_at(directory, from), target = path_at(directory, to);
  return source.empty() || target.empty() ? -1 : rename_path(source, target, false);
}
int linkat(int from_directory, const char* from, int to_directory, const char* to, int /*flags*/) {
  const std::wstring source = path_at(from_directory, from), target = path_at(to_directory, to);
  if (source.empty() || target.empty()) return -1;
  return ::CreateHardLinkW(target.c_str(), source.c_str(), nullptr) != 0 ? 0 : fail();
}

/// Whether it is there: who may do what is known only when it is tried.
int faccessat(int directory, const char* path, int /*mode*/, int /*flags*/) {
  struct stat status{};
  return examine_path(directory, path, &status, true);
}
int fchmod(int /*fd*/, mode_t /*mode*/) { return 0; }
uid_t geteuid(void) { return 0; }

int utimensat(int directory, const char* path, const struct timespec times[2], int flags) {
  const std::wstring at = path_at(directory, path);
  if (at.empty()) return -1;
  const Opened file(open_existing(at, FILE_WRITE_ATTRIBUTES, (flags & AT_SYMLINK_NOFOLLOW) == 0));
  if (file.failed()) return fail();
  FILETIME now{};
  ::GetSystemTimeAsFileTime(&now);
  const auto chosen = [&](const timespec& time) { return time.tv_nsec == UTIME_NOW ? &now : nullptr; };
  return ::SetFileTime(file.handle, nullptr, chosen(times[0]), chosen(times[1])) != 0 ? 0 : fail();
}

int fstatvfs(int fd, struct statvfs* space) {
  ULARGE_INTEGER free_here{}, all{};
  const std::wstring path = path_of(fd);
  if (path.empty()) return -1;
  if (::GetDiskFreeSpaceExW(path.c_str(), &free_here, &all, nullptr) == 0) return fail();
  *space = {};
  space->f_frsize = 4096;
  space->f_blocks = all.QuadPart / space->f_frsize;
  space->f_bavail = free_here.QuadPart / space->f_frsize;
  return 0;
}

int fcntl(int /*fd*/, int /*command*/, ...) { return 0; }  // descriptors have no modes to ask for or to set

/// Of a byte that no file reaches: Windows' locks keep others from reading what is locked.
int flock(int fd, int operation) {
  OVERLAPPED at = place(off_t{0x7fffffff} << 32);
  const DWORD how = LOCKFILE_EXCLUSIVE_LOCK | ((operation & LOCK_NB) != 0 ? LOCKFILE_FAIL_IMMEDIATELY : 0);
  return ::LockFileEx(handle_of(fd), how, 0, 1, 0, &at) != 0 ? 0 : fail();
}

int fsync(int fd) {
  if (::FlushFileBuffers(handle_of(fd)) != 0) return 0;
  struct stat status{};
  if (::fstat(fd, &status) != 0 || S_ISREG(status.st_mode)) return fail();
  errno = EINVAL;  // a directory or a pipe, as POSIX has it
  return -1;
}

ssize_t pread(int fd, void* to, size_t count, off_t at) {
  OVERLAPPED from = place(at);
  DWORD done = 0;
  if (::ReadFile(handle_of(fd), to, static_cast<DWORD>(std::min(count, size_t{1} << 30)), &done, &from) != 0)
    return done;
  return ::GetLastError() == ERROR_HANDLE_EOF ? 0 : fail();
}
ssize_t pwrite(int fd, const void* from, size_t count, off_t at) {
  OVERLAPPED to = place(at);
  DWORD done = 0;
  if (::WriteFile(handle_of(fd), from, static_cast<DWORD>(std::min(count, size_t{1} << 30)), &done, &to) == 0)
    return fail();
  return done;
}

DIR* fdopendir(int fd) {
  std::wstring path = path_of(fd);
  constexpr std::wstring_view kPrefix = L"\\\\?\\";
  if (path.starts_with(kPrefix)) path.erase(0, kPrefix.size());
  DIR* const listing = path.empty() ? nullptr : ::opendir(dllm::windows::narrow(path.c_str()).c_str());
  if (listing != nullptr) ::close(fd);
  return listing;
}

}  // extern "C"
