// The folder in which a worker keeps the weights that ranks 0 have sent.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/file_descriptor.h"
#include "base/file_lock.h"
#include "base/human_bytes.h"
#include "base/os_files.h"
#include "base/system_error.h"
#include "base/to_size.h"
#include "base/try.h"
#include "engine/backend/rank_parts.h"
#include "format/mapped_file.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKept = ".gguf";      ///< a complete part
constexpr const char* kArriving = ".part";  ///< locked by the process that writes it

struct KeptPart {
  fs::path path;
  std::uint64_t bytes = 0;  ///< on disk, without holes
  std::int64_t used = 0;    ///< ns
};

/// Also removes what writers that were killed have left.
std::vector<KeptPart> kept_parts(const std::string& folder) {
  std::vector<KeptPart> all;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure)) {
    struct stat status{};
    if (::lstat(it->path().string().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (it->path().extension() == kArriving) {
      const auto lock = FileLock::try_take(it->path().string());
      if (lock && *lock) ::unlink(it->path().string().c_str());
    }
    if (it->path().extension() != kKept) continue;
    constexpr std::uint64_t kBlock = 512;
    all.push_back({it->path(), static_cast<std::uint64_t>(status.st_blocks) * kBlock, used_at(status)});
  }
  return all;
}

}  // namespace

std::string PartFolder::file_of(const FilePart& part) const {
  return (fs::path(path_) / (part.digest() + kKept)).string();
}

std::string PartFolder::find(const FilePart& part) const {
  if (path_.empty() || !keeps_) return "";
  const std::string path = file_of(part);
  // The time of use; that of the content tells other processes that it is the same.
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  if (::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) return "";
  const auto file = MappedFile::open(path);
  if (!file || (*file)->bytes().size() != part.file_bytes) return "";
  Checksum sum;
  for (const FilePart::Range& range : part.ranges)
    sum.add((*file)->bytes().subspan(to_size(range.first), to_size(range.count)));
  return sum.value() == part.checksum ? path : "";
}

Expected<void> PartFolder::make_room(const FilePart& part) const {
  if (path_.empty())
    return Error{ErrorCode::kUsage, "there is no folder for the weights that the first rank sends", "--cache",
                 "name one, or give -m FILE"};
  if (part.bytes() > most_)
    return Error{ErrorCode::kResource,
                 fmt::format("this rank's part of the weights has {}, more than the cache may hold",
                             human_bytes(static_cast<double>(part.bytes()))),
                 path_, "raise --cache-size, or give -m FILE"};
  std::error_code failure;
  if (!fs::exists(path_, failure)) {
    fs::create_directories(path_, failure);
    fs::permissions(path_, fs::perms::owner_all, failure);
  }
  std::vector<KeptPart> all = kept_parts(path_);
  std::ranges::sort(all, {}, &KeptPart::used);
  std::uint64_t sum = part.bytes();
  for (const KeptPart& one : all) sum += one.bytes;
  // Processes that use such a file keep their map of it.
  for (const KeptPart& one : all) {
    if (sum <= most_) break;
    if (::unlink(one.path.string().c_str()) == 0) sum -= one.bytes;
  }
  return {};
}

namespace {

/// A file that nobody else writes to.
struct Arriving {
  std::string path;
  FileLock lock;
  FileDescriptor file;
};

/// A process number alone is no name of its own: those of several containers, which may share a folder, are the same.
Expected<Arriving> arriving_file(const std::string& target) {
  constexpr int kMostWriters = 256;
  for (int i = 0; i < kMostWriters; ++i) {
    std::string path = fmt::format("{}.{}-{}{}", target, ::getpid(), i, kArriving);
    DLLM_TRY(std::optional<FileLock> lock, FileLock::try_take(path));
    if (!lock) continue;
    FileDescriptor file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW));
    if (file.get() >= 0) return Arriving{std::move(path), *std::move(lock), std::move(file)};
    // Who looked for what killed writers have left may have removed it before it was locked.
    if (errno != ENOENT) return system_error("cannot be opened", errno, path);
  }
  return Error{ErrorCode::kIo, fmt::format("{} ranks write this file", kMostWriters), target, "start all ranks again"};
}

class SparseWriter final : public PartWriter {
 public:
  /// `target`: empty: it is not kept.
  SparseWriter(std::string target, std::string path, FileLock lock, FileDescriptor file, const FilePart& part)
      : target_(std::move(target)),
        path_(std::move(path)),
        lock_(std::move(lock)),
        file_(std::move(file)),
        part_(part) {}
  ~SparseWriter() override {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  Expected<void> append(std::span<const std::byte> bytes) override {
    sum_.add(bytes);
    while (!bytes.empty()) {
      if (range_ == part_.ranges.size())
        return Error{ErrorCode::kIo, "rank 0 sent more than this rank's weights", path_, ""};
      const FilePart::Range& range = part_.ranges[range_];
      const auto here = to_size(std::min<std::uint64_t>(bytes.size(), range.count - done_));
      DLLM_CHECK_OK(write(bytes.first(here), range.first + done_));
      bytes = bytes.subspan(here);
      done_ += here;
      if (done_ == range.count) ++range_, done_ = 0;
    }
    return {};
  }

  Expected<std::string> commit() override {
    if (range_ != part_.ranges.size() || sum_.value() != part_.checksum)
      return Error{ErrorCode::kIo, "the weights from rank 0 arrived damaged", path_, "start all ranks again"};
    if (target_.empty()) return path_;
    if (::fsync(file_.get()) != 0) return system_error("cannot write", errno, path_);
    if (::rename(path_.c_str(), target_.c_str()) != 0) return system_error("cannot rename", errno, path_);
    path_.clear();
    return target_;
  }

 private:
  Expected<void> write(std::span<const std::byte> bytes, std::uint64_t at) {
    while (!bytes.empty()) {
      const ssize_t done = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return system_error("cannot write", errno, path_);
      bytes = bytes.subspan(to_size(done));
      at += static_cast<std::uint64_t>(done);
    }
    return {};
  }

  std::string target_, path_;
  FileLock lock_;
  FileDescriptor file_;
  FilePart part_;
  Checksum sum_;
  std::size_t range_ = 0;
  std::uint64_t done_ = 0;  ///< of this range
};

}  // namespace

Expected<std::unique_ptr<PartWriter>> PartWriter::create(const PartFolder& folder, const FilePart& part) {
  const std::string target = folder.file_of(part);
  DLLM_TRY(Arriving own, arriving_file(target));
  ::fchmod(own.file.get(), 0600);
  if (::ftruncate(own.file.get(), static_cast<off_t>(part.file_bytes)) != 0)
    return system_error("cannot have this size", errno, own.path);
  return std::unique_ptr<PartWriter>(new SparseWriter(folder.keeps() ? target : "", std::move(own.path),
                                                      std::move(own.lock), std::move(own.file), part));
}

}  // namespace dllm
