#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "dllm/error.h"
#include "format/mapped_file.h"
#include "quant/canvas_runner.h"

namespace dllm {

/// Activations between two stages of a calibration, chunk after chunk: the number of values; of each its id, rows and
/// width as 64-bit integers, and its floats.
class ActivationWriter {
 public:
  static Expected<ActivationWriter> create(const std::string& path);
  Expected<void> append(const CanvasChunk& chunk, const std::vector<ValueId>& values);
  Expected<void> commit() { return file_.commit(); }

 private:
  explicit ActivationWriter(OutputFile file) : file_(std::move(file)) {}
  OutputFile file_;
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
  /// Errors: kIo, kInvalidFile (not such a file, or incomplete).
  static Expected<ActivationFile> open(const std::string& path);

  std::size_t chunks() const { return chunks_.size(); }
  /// Precondition: the chunk has the value.
  const StoredRows& rows(std::size_t chunk, ValueId value) const { return chunks_[chunk].at(value); }
  /// Copies all values of a chunk.
  void copy(std::size_t chunk, CanvasChunk& to) const;
  /// Releases the memory of the chunk's pages, which are read again on access.
  void drop(std::size_t chunk) const;
  /// Errors: kIo, the file changed while it was read.
  Expected<void> check() const { return file_->check(); }

 private:
  explicit ActivationFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}
  Expected<void> index();
  Expected<std::int64_t> number(std::size_t& at) const;

  std::shared_ptr<const MappedFile> file_;
  std::vector<std::map<ValueId, StoredRows>> chunks_;
};

}  // namespace dllm
