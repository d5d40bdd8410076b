#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "base/output_file.h"
#include "dllm/error.h"

namespace dllm {

/// Bytes that live as long as the object: a read-only memory map of a file, or borrowed memory (the embedded model, a
/// fuzzer's input). Shared between threads.
///
/// The bytes of a file may change while it is mapped: another program writes into it or truncates it. (Replacing a file
/// by a rename is harmless: the map keeps the old one.) Reading a missing page raises SIGBUS; the handler that the
/// first open() installs substitutes zeros and records it, so readers continue and check() reports it. What was read is
/// valid only if check() succeeds afterwards.
class MappedFile {
 public:
  /// Maps the whole file read-only. Errors: kIo (missing, unreadable, not a regular file), kResource.
  static Expected<std::shared_ptr<const MappedFile>> open(const std::string& path);

  /// Wraps bytes that outlive the object; messages show `name` instead of a path.
  static std::shared_ptr<const MappedFile> wrap(std::span<const std::byte> bytes, std::string name);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& name() const { return name_; }
  /// Whether the bytes are a mapped file rather than borrowed memory.
  bool mapped() const { return range_ != nullptr; }
  /// Identity of the mapped file; zeros for other memory.
  FileIdentity identity() const { return identity_; }

  /// Whether the bytes are still those that were mapped: size and modification time are unchanged, and no page was
  /// missing. Errors: kIo, "the file changed while it was read".
  Expected<void> check() const;

  enum class State {
    kSame,     ///< check() succeeds
    kTouched,  ///< as large as it was and all pages were there, but its modification time is another: digest() tells
    kChanged,  ///< it has another size, or a page was missing and read as zeros
  };
  State state() const;
  /// The file's modification time now, in ns; of one that cannot be examined 0.
  std::int64_t modified() const;
  /// A digest of the file's bytes as they are now, for comparing it with itself. It reads the whole file, so that the
  /// pages of the map stay as they are. nullopt: stopped, or not readable.
  std::optional<std::uint64_t> digest(const std::stop_token& stop) const;
  /// The file of this modification time has the mapped bytes: check() accepts it from now on.
  void accept(std::int64_t modified) const { modified_ = modified; }
  /// Whether the path leads to another file now, or to none.
  bool replaced() const;

  /// Releases the memory of the pages that are entirely inside `bytes`, a part of a mapped file: they are read again on
  /// access. Never call it for other memory, whose content would be lost.
  static void drop_pages(std::span<const std::byte> bytes);

 private:
  struct Range;
  MappedFile(std::span<const std::byte> bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  std::span<const std::byte> bytes_;
  std::string name_;
  FileIdentity identity_;
  mutable std::atomic<std::int64_t> modified_ = 0;  ///< in ns; accept() may change it
  int fd_ = -1;                                     ///< of the map, for check()
  Range* range_ = nullptr;                          ///< the handler's record of the map; null for other memory
};

/// The first error of check() among `files`.
Expected<void> check_unchanged(std::span<const std::shared_ptr<const MappedFile>> files);

}  // namespace dllm
