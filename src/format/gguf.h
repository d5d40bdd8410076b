#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_file.h"
#include "dllm/error.h"
#include "format/mapped_file.h"
#include "format/metadata.h"
#include "format/tensor_info.h"

namespace dllm {

/// A tensor inside a GGUF file.
struct GgufTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  Shape shape;
  std::uint64_t offset = 0;         ///< absolute byte offset in the file
  std::span<const std::byte> data;  ///< exactly the tensor's bytes, inside the map
};

/// A list of whole numbers, which no codec reads: a drafter's map of tokens (`d2t`), the only one that is read.
struct GgufIntegers {
  std::string name;
  std::vector<std::int64_t> values;
};

/// A parsed GGUF v2/v3 file (little endian). Everything is checked on open: counts and lengths against the file size
/// before memory is reserved for them, duplicate keys and tensor names, known tensor types, row lengths against block
/// sizes, alignment (`general.alignment`, a power of two from 8 to 2^30), and that offsets are aligned, inside the file
/// and not overlapping. Unused bytes are allowed. Unsupported: version 1, big endian, models split over files.
class GgufFile {
 public:
  static Expected<GgufFile> open(const std::string& path);
  static Expected<GgufFile> parse(std::shared_ptr<const MappedFile> file);
  /// The same for a file that may be a part of a split model (open() refuses those).
  static Expected<GgufFile> open_part(const std::string& path);

  std::uint32_t version() const { return version_; }
  std::uint64_t alignment() const { return alignment_; }
  const Metadata& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const std::vector<GgufIntegers>& integers() const { return integers_; }
  const GgufTensor* find_tensor(std::string_view name) const;
  const MappedFile& file() const { return *file_; }
  const std::shared_ptr<const MappedFile>& shared_file() const { return file_; }

 private:
  friend class GgufParser;
  std::shared_ptr<const MappedFile> file_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  Metadata metadata_;
  std::vector<GgufTensor> tensors_;
  std::vector<GgufIntegers> integers_;
  std::vector<std::size_t> by_name_;  ///< positions in tensors_, sorted by name
};

/// The files of a split model, in their order, from the path of its first ("m-00001-of-00003.gguf", as llama-gguf-split
/// names them); of any other path, itself.
std::vector<std::string> gguf_parts(const std::string& path);

/// Writes GGUF v3. Tensors are declared first (the header contains their offsets), then their bytes are produced one
/// after the other, so a 16 GB model needs memory for one tensor only.
class GgufWriter {
 public:
  /// Produces the bytes of one tensor; the span must stay valid until the next call.
  using Producer = std::function<Expected<std::span<const std::byte>>()>;
  /// Takes the next bytes of a tensor; they are written before it returns.
  using Sink = std::function<Expected<void>(std::span<const std::byte>)>;
  /// Passes the bytes of one tensor to `sink` piece by piece, for tensors that must never be in memory as a whole.
  using Stream = std::function<Expected<void>(const Sink& sink)>;

  /// Uses `general.alignment`; 32 if the key is absent.
  explicit GgufWriter(Metadata metadata);
  /// `name` unique, at most 63 bytes (llama.cpp's limit); `shape` 1-4 dims; the row length fits the type's block.
  Expected<void> add(std::string name, TensorType type, Shape shape, Producer producer);
  Expected<void> add_stream(std::string name, TensorType type, Shape shape, Stream stream);
  /// Size of the file that write() will make, to check free space in advance. Errors: as write()'s.
  Expected<std::uint64_t> file_bytes() const;
  /// Replaces the file by a complete one or leaves it unchanged (OutputFile). The bytes depend only on metadata,
  /// tensors and their order. Errors: those of OutputFile and of the producers; kUsage (a metadata value does not fit
  /// its declared type); kMismatch (a producer's number of bytes is not the tensor's).
  Expected<void> write(const std::string& path, OutputOptions options = {});

 private:
  struct Entry {
    std::string name;
    TensorType type;
    Shape shape;
    Stream stream;
  };
  Expected<std::string> header(std::uint64_t alignment) const;

  Metadata metadata_;
  std::vector<Entry> entries_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace dllm
