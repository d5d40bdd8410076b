#include "format/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace dllm {
namespace {

Error io_error(const std::string& path, std::string_view action, int code) {
  std::string hint = code == ENOENT ? "check the path" : code == EACCES ? "check the file's permissions" : "";
  return {ErrorCode::kIo, std::string(action) + ": " + std::generic_category().message(code), path, std::move(hint)};
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Expected<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must fail below, not wait for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return io_error(path, "cannot open", errno);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return io_error(path, "cannot examine", errno);
  if (S_ISDIR(status.st_mode)) return io_error(path, "cannot read as a file", EISDIR);
  if (!S_ISREG(status.st_mode))
    return Error{ErrorCode::kIo, "not a regular file", path, "copy it to a regular file: it has to be mapped"};

  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0)  // mmap refuses a length of 0
    return std::shared_ptr<const MappedFile>(new MappedFile({}, path, false));
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) return io_error(path, "cannot map", errno);
  return std::shared_ptr<const MappedFile>(new MappedFile({static_cast<const std::byte*>(address), size}, path, true));
}

std::shared_ptr<const MappedFile> MappedFile::wrap(std::span<const std::byte> bytes, std::string name) {
  return std::shared_ptr<const MappedFile>(new MappedFile(bytes, std::move(name), false));
}

void MappedFile::drop_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = (begin + page - 1) / page * page, last = (begin + bytes.size()) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (owned_) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace dllm
