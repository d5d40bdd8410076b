#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "dllm/error.h"
#include "format/sealed_file.h"
#include "quant/canvas_runner.h"

namespace dllm {

/// Activations between two stages of a calibration, chunk after chunk: the number of values; of each its id, rows and
/// width as 64-bit integers, and its floats.
class ActivationWriter {
 public:
  explicit ActivationWriter(SealedWriter file) : file_(std::move(file)) {}
  Expected<void> append(const CanvasChunk& chunk, const std::vector<ValueId>& values);
  Expected<void> commit() { return file_.commit(); }

 private:
  SealedWriter file_;
};

/// A value of a chunk, in the mapped file.
struct StoredRows {
  std::int64_t width = 0;
  std::span<const float> values;  ///< [rows][width]
  std::int64_t rows() const { return width > 0 ? static_cast<std::int64_t>(values.size()) / width : 0; }
  std::span<const float> row(std::int64_t r) const {
    return values.subspan(static_cast<std::size_t>(r * width), static_cast<std::size_t>(width));
  }
};

/// Reads what ActivationWriter wrote.
class ActivationFile {
 public:
  /// Errors: kInvalidFile (its payload is not such a list, or a chunk lacks one of the values).
  static Expected<ActivationFile> open(SealedFile file, const std::vector<ValueId>& values);

  std::size_t chunks() const { return chunks_.size(); }
  /// Precondition: the chunk has the value.
  const StoredRows& rows(std::size_t chunk, ValueId value) const { return chunks_[chunk].at(value); }
  /// Copies all values of a chunk.
  void copy(std::size_t chunk, CanvasChunk& to) const;
  /// Releases the memory of the chunk's pages, which are read again on access.
  void drop(std::size_t chunk) const;
  /// Errors: kIo, the file changed while it was read.
  Expected<void> check() const { return file_.check(); }

 private:
  explicit ActivationFile(SealedFile file) : file_(std::move(file)) {}
  Expected<void> index();
  Expected<std::int64_t> number(std::size_t& at) const;

  SealedFile file_;
  std::vector<std::map<ValueId, StoredRows>> chunks_;
};

}  // namespace dllm
