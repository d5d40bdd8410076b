#pragma once

#include <memory>
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

/// Reads what ActivationWriter wrote. Errors: kIo, kInvalidFile (not such a file, or incomplete).
class ActivationReader {
 public:
  static Expected<ActivationReader> open(const std::string& path);
  /// The next chunk's values.
  Expected<void> read(CanvasChunk& chunk);

 private:
  explicit ActivationReader(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}
  Expected<std::int64_t> number();

  std::shared_ptr<const MappedFile> file_;
  std::size_t at_ = 0;
};

}  // namespace dllm
