#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/checksum.h"
#include "base/output_file.h"
#include "dllm/error.h"
#include "format/mapped_file.h"

namespace dllm {

/// A file of intermediate results that a later run may find: it is believed only if it is whole, undamaged and what the
/// run asks for. Layout, in the machine's byte order: SealedHead, the payload, SealedEnd.
struct SealedHead {
  char magic[8];
  std::uint32_t version;
  std::uint32_t byte_order;  ///< differs on a machine with the other one
  std::uint64_t key;
  std::uint64_t reserved[5];  ///< the payload begins at a multiple of 64, for views of floats
};
static_assert(sizeof(SealedHead) == 64);

struct SealedEnd {
  std::uint64_t payload_bytes;
  std::uint64_t checksum;  ///< of head, payload and the field above
};

/// Writes such a file through OutputFile.
class SealedWriter {
 public:
  /// `key`: a hash of everything that the payload depends on, and of its role among the files of the run.
  static Expected<SealedWriter> create(const std::string& path, std::uint64_t key);
  Expected<void> append(std::span<const std::byte> bytes);
  Expected<void> commit();

 private:
  explicit SealedWriter(OutputFile file) : file_(std::move(file)) {}
  Expected<void> put(std::span<const std::byte> bytes);

  OutputFile file_;
  Checksum sum_;
  std::uint64_t payload_ = 0;
};

/// A verified file, mapped.
class SealedFile {
 public:
  /// Reads all of it. Errors: kIo (absent, unreadable), kMismatch (another key or version), kInvalidFile (cut, damaged,
  /// no such file).
  static Expected<SealedFile> open(const std::string& path, std::uint64_t key);

  std::span<const std::byte> payload() const { return payload_; }
  const std::string& name() const { return file_->name(); }
  /// Errors: kIo, the file changed after it was verified.
  Expected<void> check() const { return file_->check(); }

 private:
  std::shared_ptr<const MappedFile> file_;
  std::span<const std::byte> payload_;
};

}  // namespace dllm
