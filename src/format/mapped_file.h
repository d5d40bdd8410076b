#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "dllm/error.h"

namespace dllm {

/// Bytes that live as long as the object: a read-only memory map of a file, or memory that belongs to someone else
/// (the embedded model, a fuzzer's input). Immutable, so it may be shared between threads.
class MappedFile {
 public:
  /// Maps the whole file read-only. Errors: kIo (missing, unreadable, a directory).
  static Expected<std::shared_ptr<const MappedFile>> open(const std::string& path);

  /// Wraps bytes that outlive the object; `name` stands for the path in messages.
  static std::shared_ptr<const MappedFile> wrap(std::span<const std::byte> bytes, std::string name);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& name() const { return name_; }
  /// Whether the bytes are a map of a file, rather than somebody's memory.
  bool mapped() const { return owned_; }

  /// Gives back the memory of the pages that lie wholly inside `bytes`, a part of a map of a file: they are read again
  /// when they are touched. Never call it on other memory, whose content would be lost.
  static void drop_pages(std::span<const std::byte> bytes);

 private:
  MappedFile(std::span<const std::byte> bytes, std::string name, bool owned)
      : bytes_(bytes), name_(std::move(name)), owned_(owned) {}

  std::span<const std::byte> bytes_;
  std::string name_;
  bool owned_;
};

}  // namespace dllm
