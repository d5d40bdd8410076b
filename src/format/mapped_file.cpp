#include "format/mapped_file.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/file_descriptor.h"
#include "base/hash.h"
#include "base/os_files.h"
#include "base/system_error.h"
#include "base/try.h"

namespace dllm {

/// A map, for the handler. Nodes are reused, never freed, so that the handler may walk their list at any time.
struct MappedFile::Range {
  std::atomic<std::uintptr_t> begin{0}, end{0};  ///< 0 when free; whole pages
  std::atomic<bool> damaged{false};
  std::atomic<bool> taken{false};
  Range* next = nullptr;

  static std::atomic<Range*> first;
  static std::uintptr_t page;
  static struct sigaction previous;

  static Range* take(std::uintptr_t begin, std::size_t size);
  void release();
  static void on_sigbus(int signal, siginfo_t* info, void*);
  static void install();
};

std::atomic<MappedFile::Range*> MappedFile::Range::first{nullptr};
std::uintptr_t MappedFile::Range::page = 4096;
struct sigaction MappedFile::Range::previous;
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

MappedFile::Range* MappedFile::Range::take(std::uintptr_t begin, std::size_t size) {
  Range* range = first.load();
  while (range != nullptr && range->taken.exchange(true)) range = range->next;
  if (range == nullptr) {
    range = new Range;
    range->taken = true;
    range->next = first.load();
    while (!first.compare_exchange_weak(range->next, range)) {
    }
  }
  range->damaged = false;
  range->begin = begin;
  range->end = (begin + size + page - 1) / page * page;
  return range;
}

void MappedFile::Range::release() {
  end = 0;
  begin = 0;
  taken = false;
}

/// Async-signal-safe: atomics and system calls only. Replaces the rest of the map at once, which saves a fault per
/// page: a truncated model is unusable anyway.
void MappedFile::Range::on_sigbus(int signal, siginfo_t* info, void*) {
  const int kept = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (info->si_code == BUS_ADRERR)
    for (Range* range = first.load(); range != nullptr; range = range->next) {
      const std::uintptr_t begin = range->begin, end = range->end;
      if (address < begin || address >= end || end != range->end || begin != range->begin) continue;
      const std::uintptr_t from = address / page * page;
      range->damaged = true;
      if (::mmap(reinterpret_cast<void*>(from), end - from, PROT_READ,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        break;
      errno = kept;
      return;
    }
  errno = kept;
  // Not our fault: do what the previous handler would have done.
  ::sigaction(SIGBUS, &previous, nullptr);
  if (info->si_code <= 0) ::raise(signal);  // a sent signal; a fault repeats when we return
}

void MappedFile::Range::install() {
  static std::once_flag once;
  std::call_once(once, [] {
    page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action{};
    action.sa_sigaction = &on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &previous);
  });
}

Expected<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  DLLM_TRY(OpenFile file, open_for_reading(path));
  const struct stat& status = file.status;
  if (S_ISDIR(status.st_mode)) return system_error("cannot read as a file", EISDIR, path);
  if (!S_ISREG(status.st_mode))
    return Error{ErrorCode::kIo, "not a regular file", path, "copy it to a regular file: it has to be mapped"};

  const auto size = static_cast<std::size_t>(status.st_size);
  const std::shared_ptr<MappedFile> result(new MappedFile({}, path));
  result->identity_ = {status.st_dev, status.st_ino};
  result->modified_ = modified_at(status);
  if (size == 0) return std::shared_ptr<const MappedFile>(result);  // mmap refuses a length of 0
  Range::install();
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor.get(), 0);
  if (address == MAP_FAILED) return system_error("cannot map", errno, path);
  result->bytes_ = {static_cast<const std::byte*>(address), size};
  result->range_ = Range::take(reinterpret_cast<std::uintptr_t>(address), size);
  result->fd_ = file.descriptor.release();
  return std::shared_ptr<const MappedFile>(result);
}

std::shared_ptr<const MappedFile> MappedFile::wrap(std::span<const std::byte> bytes, std::string name) {
  return std::shared_ptr<const MappedFile>(new MappedFile(bytes, std::move(name)));
}

MappedFile::State MappedFile::state() const {
  if (range_ == nullptr) return State::kSame;
  struct stat status{};
  if (range_->damaged || ::fstat(fd_, &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes_.size())
    return State::kChanged;
  return modified_at(status) == modified_ ? State::kSame : State::kTouched;
}

Expected<void> MappedFile::check() const {
  if (state() == State::kSame) return {};
  return Error{ErrorCode::kIo, "the file changed while it was read", name_,
               "is another program writing it? begin again when it has finished"};
}

std::int64_t MappedFile::modified() const {
  struct stat status{};
  return range_ != nullptr && ::fstat(fd_, &status) == 0 ? modified_at(status) : 0;
}

std::optional<std::uint64_t> MappedFile::digest(const std::stop_token& stop) const {
  Checksum sum;
  std::vector<std::byte> bytes(std::size_t{1} << 20);
  for (off_t at = 0; at < static_cast<off_t>(bytes_.size());) {
    if (stop.stop_requested()) return std::nullopt;
    const auto size = ::pread(fd_, bytes.data(), bytes.size(), at);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return std::nullopt;
    sum.add(std::span(bytes).first(static_cast<std::size_t>(size)));
    at += size;
  }
  return sum.value();
}

bool MappedFile::replaced() const {
  if (range_ == nullptr) return false;
  const auto now = file_identity(name_);
  return !now || *now != identity_;
}

void MappedFile::drop_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = (begin + page - 1) / page * page, last = (begin + bytes.size()) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (range_ == nullptr) return;
  range_->release();
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  ::close(fd_);
}

Expected<void> check_unchanged(std::span<const std::shared_ptr<const MappedFile>> files) {
  for (const auto& file : files) DLLM_CHECK_OK(file->check());
  return {};
}

}  // namespace dllm
