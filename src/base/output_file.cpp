#include "base/output_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file_descriptor.h"
#include "base/os_files.h"
#include "base/os_process.h"
#include "base/system_error.h"
#include "base/try.h"

namespace dllm {
namespace {

// The name of a temporary: kPrefix, 16 hexadecimal digits, kSuffix. It does not contain the target's name, which may
// already have the maximum of 255 bytes.
constexpr std::string_view kPrefix = ".dllm-", kSuffix = ".part";
constexpr std::size_t kDigits = 16, kNameBytes = kPrefix.size() + kDigits + kSuffix.size();
constexpr std::size_t kBuffer = std::size_t{1} << 18;
constexpr int kAttempts = 100;

/// What a signal handler needs to know about a temporary. Slots are reused, never freed, so that the handler may walk
/// the list at any time.
struct Slot {
  std::atomic<int> state{kFree};
  int directory = -1;
  char name[kNameBytes + 1] = {};
  Slot* next = nullptr;

  enum { kFree, kTaken, kLive };
};
std::atomic<Slot*> slots{nullptr};
std::atomic<bool> ending{false};
static_assert(std::atomic<Slot*>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

Slot* take_slot() {
  for (Slot* slot = slots.load(); slot != nullptr; slot = slot->next) {
    int expected = Slot::kFree;
    if (slot->state.compare_exchange_strong(expected, Slot::kTaken)) return slot;
  }
  auto* slot = new Slot;
  slot->state = Slot::kTaken;
  slot->next = slots.load();
  while (!slots.compare_exchange_weak(slot->next, slot)) {
  }
  return slot;
}

FileIdentity identity_of(const struct stat& status) { return {status.st_dev, status.st_ino}; }

bool is_temporary_name(std::string_view name) {
  return name.size() == kNameBytes && name.starts_with(kPrefix) && name.ends_with(kSuffix) &&
         name.substr(kPrefix.size(), kDigits).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Whether `name` in `directory` is still the file that `fd` refers to.
bool still_names(int directory, const char* name, int fd) {
  struct stat by_name{}, by_fd{};
  return ::fstatat(directory, name, &by_name, AT_SYMLINK_NOFOLLOW) == 0 && ::fstat(fd, &by_fd) == 0 &&
         identity_of(by_name) == identity_of(by_fd);
}

/// Removes a temporary whose writer has died. A living writer holds the lock. Locks end with the process, even in
/// another PID namespace, where a process number would be meaningless.
void sweep_one(int directory, const char* name, const std::vector<FileIdentity>& sources) {
  const int fd = ::openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  struct stat status{};
  const bool ours = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == ::geteuid() &&
                    std::find(sources.begin(), sources.end(), identity_of(status)) == sources.end();
  if (ours && ::flock(fd, LOCK_EX | LOCK_NB) == 0 && still_names(directory, name, fd)) ::unlinkat(directory, name, 0);
  ::close(fd);
}

void sweep(int directory, const std::vector<FileIdentity>& sources) {
  const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return;
  DIR* listing = ::fdopendir(copy);
  if (listing == nullptr) {
    ::close(copy);
    return;
  }
  while (const dirent* entry = ::readdir(listing))
    if (is_temporary_name(entry->d_name)) sweep_one(directory, entry->d_name, sources);
  ::closedir(listing);
}

struct Place {
  std::string directory, name;
};

Place place_of(const std::string& target) {
  const std::size_t name = file_name_at(target);
  if (name == 0) return {".", target};
  // With the separator, which is all that a root has.
  return {target.substr(0, name), target.substr(name)};
}

/// -1 and errno. A directory that is writable but not readable can be neither swept nor synchronised.
int open_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return fd >= 0 || errno != EACCES ? fd : ::open(path.c_str(), kSearchOnly | O_DIRECTORY | O_CLOEXEC);
}

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISFIFO(mode)) return "a named pipe";
  return "no regular file";
}

/// Whether the target exists, and its status. Errors: it must not be replaced.
Expected<bool> examine_target(int directory, const std::string& name, const std::string& target,
                              const OutputOptions& options, struct stat& status) {
  if (name.empty() || name == "." || name == "..")
    return Error{ErrorCode::kUsage, "the target is a directory", target, "name a file"};
  if (::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return false;
    return system_error("cannot examine", errno, target);
  }
  if (!S_ISREG(status.st_mode))
    return Error{ErrorCode::kUsage, "the target is " + std::string(kind_of(status.st_mode)), target,
                 S_ISLNK(status.st_mode) ? "name the file itself" : "only regular files are written and replaced"};
  if (std::find(options.sources.begin(), options.sources.end(), identity_of(status)) != options.sources.end())
    return Error{ErrorCode::kUsage, "the target is the source", target, "write to another file"};
  if (!options.replace) return Error{ErrorCode::kUsage, "the file exists", target, "--force replaces it"};
  return true;
}

Expected<void> random_name(char* name, const std::string& target) {
  unsigned char bytes[kDigits / 2];
  if (!random_bytes(bytes, sizeof bytes)) return system_error("cannot draw a name", errno, target);
  char* at = std::copy(kPrefix.begin(), kPrefix.end(), name);
  for (const unsigned char byte : bytes) {
    *at++ = "0123456789abcdef"[byte >> 4];
    *at++ = "0123456789abcdef"[byte & 15];
  }
  *std::copy(kSuffix.begin(), kSuffix.end(), at) = '\0';
  return {};
}

/// Whether synchronisation failed, except because this kind of file does not support it.
bool lost(int result) { return result != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS && errno != EBADF; }

}  // namespace

struct OutputFile::Temporary {
  int directory = -1, fd = -1;
  Slot* slot = nullptr;
  std::string name;  ///< of the target within its directory

  Temporary() = default;
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (slot != nullptr) {
      if (slot->state.load() == Slot::kLive) ::unlinkat(directory, slot->name, 0);
      slot->state = Slot::kFree;
    }
    if (fd >= 0) ::close(fd);
    if (directory >= 0) ::close(directory);
  }

  Expected<void> open(const std::string& target) {
    slot = take_slot();
    slot->directory = directory;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      slot->state = Slot::kTaken;
      DLLM_CHECK_OK(random_name(slot->name, target));
      slot->state = Slot::kLive;  // before the file exists, so that no signal can come in between
      fd = ::openat(directory, slot->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
      if (fd < 0 && errno == EEXIST) continue;
      if (fd < 0) return system_error("cannot create", errno, target);
      if (ending.load()) ::unlinkat(directory, slot->name, 0);
      // A sweeper may have found the file before it was locked: then it is gone, and another name is tried. On file
      // systems without locks there are no sweepers either.
      int locked = 0;
      while ((locked = ::flock(fd, LOCK_EX)) != 0 && errno == EINTR) {
      }
      if (locked != 0) return {};
      if (still_names(directory, slot->name, fd)) return {};
      ::close(std::exchange(fd, -1));
    }
    return Error{ErrorCode::kIo, "no temporary file stays in the directory", target, ""};
  }
};

Expected<FileIdentity> file_identity(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return system_error("cannot examine", errno, path);
  return identity_of(status);
}

OutputFile::OutputFile(std::string target, OutputOptions options, std::unique_ptr<Temporary> temporary)
    : target_(std::move(target)), options_(std::move(options)), temporary_(std::move(temporary)) {}
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile::~OutputFile() = default;

OutputOptions made_of(std::span<const std::string> paths) {
  OutputOptions options;
  for (const std::string& path : paths)
    if (const auto identity = file_identity(path)) options.sources.push_back(*identity);
  return options;
}

namespace {

/// Whether a file can be added to the directory, as far as can be told without adding one.
Expected<void> check_room(int directory, const std::string& target) {
  if (::faccessat(directory, ".", W_OK | X_OK, AT_EACCESS) != 0) return system_error("cannot create", errno, target);
  struct statvfs space{};
  const bool known = ::fstatvfs(directory, &space) == 0 && space.f_blocks > 0;
  if (known && (space.f_bavail == 0 || (space.f_files > 0 && space.f_favail == 0)))
    return system_error("cannot create", ENOSPC, target);
  return {};
}

}  // namespace

Expected<void> check_output(const std::string& target, const OutputOptions& options) {
  const Place place = place_of(target);
  const int directory = open_directory(place.directory);
  if (directory < 0) return system_error("cannot create", errno, target);
  struct stat status{};
  const auto known = examine_target(directory, place.name, target, options, status);
  const auto room = known ? check_room(directory, target) : Expected<void>();
  ::close(directory);
  if (!known) return known.error();
  return room;
}

Expected<OutputFile> OutputFile::create(const std::string& target, OutputOptions options) {
  const Place place = place_of(target);
  auto temporary = std::make_unique<Temporary>();
  temporary->directory = open_directory(place.directory);
  if (temporary->directory < 0) return system_error("cannot create", errno, target);
  temporary->name = place.name;
  struct stat status{};
  DLLM_TRY(const bool exists, examine_target(temporary->directory, place.name, target, options, status));
  sweep(temporary->directory, options.sources);
  DLLM_CHECK_OK(temporary->open(target));
  // A private file stays private. If the mode cannot be kept (another owner's file system), a new file's is used.
  if (exists && ::fchmod(temporary->fd, status.st_mode & 0777) != 0) errno = 0;
  return OutputFile(target, std::move(options), std::move(temporary));
}

Expected<void> OutputFile::append(const void* data, std::size_t size) {
  size_ += size;
  const std::string_view bytes(static_cast<const char*>(data), size);
  if (buffer_.size() + size < kBuffer) {
    buffer_.append(bytes);
    return {};
  }
  DLLM_CHECK_OK(flush());
  return write(bytes);
}

Expected<void> OutputFile::write(std::string_view bytes) {
  if (!write_all(temporary_->fd, bytes)) return system_error("cannot write", errno, target_);
  return {};
}

Expected<void> OutputFile::flush() {
  DLLM_CHECK_OK(write(buffer_));
  buffer_.clear();
  return {};
}

Expected<void> OutputFile::rename_to_target() {
  // The target may have been created or replaced since create().
  struct stat status{};
  DLLM_TRY(const bool exists, examine_target(temporary_->directory, temporary_->name, target_, options_, status));
  (void)exists;
  const char* from = temporary_->slot->name;
  const char* to = temporary_->name.c_str();
  const int directory = temporary_->directory;
  if (options_.replace) {
    if (::renameat(directory, from, directory, to) != 0) return system_error("cannot rename", errno, target_);
  } else if (rename_new(directory, from, to) != 0) {
    if (errno == EEXIST) return Error{ErrorCode::kUsage, "the file exists", target_, "--force replaces it"};
    // File systems without RENAME_NOREPLACE: link() does not replace either, and there may be no links.
    if (errno != EINVAL && errno != ENOSYS) return system_error("cannot rename", errno, target_);
    if (::linkat(directory, from, directory, to, 0) != 0) {
      if (errno == EEXIST) return Error{ErrorCode::kUsage, "the file exists", target_, "--force replaces it"};
      if (::renameat(directory, from, directory, to) != 0) return system_error("cannot rename", errno, target_);
    } else {
      ::unlinkat(directory, from, 0);
    }
  }
  temporary_->slot->state = Slot::kTaken;
  return {};
}

Expected<void> OutputFile::commit() {
  DLLM_CHECK_OK(flush());
  if (lost(::fsync(temporary_->fd))) return system_error("cannot write", errno, target_);
  if (options_.check) DLLM_CHECK_OK(options_.check());
  DLLM_CHECK_OK(rename_to_target());
  if (lost(::fsync(temporary_->directory))) return system_error("cannot write the directory", errno, target_);
  return {};
}

Expected<void> write_file(const std::string& target, std::string_view content, OutputOptions options) {
  DLLM_TRY(OutputFile file, OutputFile::create(target, std::move(options)));
  DLLM_CHECK_OK(file.append(content.data(), content.size()));
  return file.commit();
}

Expected<void> write_file(const std::string& target, std::span<const std::byte> content, OutputOptions options) {
  return write_file(target, std::string_view(reinterpret_cast<const char*>(content.data()), content.size()),
                    std::move(options));
}

void remove_temporaries() noexcept {
  const int kept = errno;
  ending = true;
  for (Slot* slot = slots.load(); slot != nullptr; slot = slot->next)
    if (slot->state.load() == Slot::kLive) ::unlinkat(slot->directory, slot->name, 0);
  errno = kept;
}

}  // namespace dllm
