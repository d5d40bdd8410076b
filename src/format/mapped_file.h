#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/output_file.h"
#include "dllm/error.h"

namespace dllm {

/// Bytes that live as long as the object: a read-only memory map of a file, or memory that belongs to someone else
/// (the embedded model, a fuzzer's input). Shared between threads.
///
/// The bytes of a file may change under its map: another program writes into it or truncates it. (A file that is
/// replaced by a rename does not: the map keeps the old one.) Reading a page that is gone raises SIGBUS; the handler
/// that the first open() installs puts zeroes in its place and remembers, so readers go on and check() tells. What was
/// read counts only if check() succeeds afterwards.
class MappedFile {
 public:
  /// Maps the whole file read-only. Errors: kIo (missing, unreadable, no regular file), kResource.
  static Expected<std::shared_ptr<const MappedFile>> open(const std::string& path);

  /// Wraps bytes that outlive the object; `name` stands for the path in messages.
  static std::shared_ptr<const MappedFile> wrap(std::span<const std::byte> bytes, std::string name);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& name() const { return name_; }
  /// Whether the bytes are a map of a file, rather than somebody's memory.
  bool mapped() const { return range_ != nullptr; }
  /// Of the file that was mapped; zeroes for other memory.
  FileIdentity identity() const { return identity_; }

  /// Whether the bytes are still those that were mapped: size and modification time are, and no page was missing.
  /// Errors: kIo, "the file changed while it was read".
  Expected<void> check() const;

  /// Gives back the memory of the pages that lie wholly inside `bytes`, a part of a map of a file: they are read again
  /// when they are touched. Never call it on other memory, whose content would be lost.
  static void drop_pages(std::span<const std::byte> bytes);

 private:
  struct Range;
  MappedFile(std::span<const std::byte> bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  std::span<const std::byte> bytes_;
  std::string name_;
  FileIdentity identity_;
  std::int64_t modified_ = 0;  ///< in ns
  int fd_ = -1;                ///< of the map, for check()
  Range* range_ = nullptr;     ///< what the handler knows of the map; null for other memory
};

/// The first error of check() among `files`.
Expected<void> check_unchanged(std::span<const std::shared_ptr<const MappedFile>> files);

}  // namespace dllm
