#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "format/mapped_file.h"
#include "format/tensor_info.h"

namespace dllm {

/// A tensor of a safetensors file, of type F32, F16 or BF16. `shape` is in GGML order: the file's dims reversed; a 0-d
/// tensor becomes {1}.
struct SafeTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  Shape shape;
  std::span<const std::byte> data;
};

/// A tensor of another type (integers, F64), or whose shape is not read (no elements, more than 4 dimensions).
struct UnreadTensor {
  std::string name;
  Error why;  ///< kUnsupported
  /// The file's, for those who read it after all. Empty if it has not been checked that `data` has the size that
  /// `shape` (as in SafeTensor) and type take: the shape is not read, or the type is unknown here.
  std::string dtype{};
  Shape shape{};
  std::span<const std::byte> data{};
};

/// One file, or the shards that a `model.safetensors.index.json` names.
class Safetensors {
 public:
  /// `path`: a .safetensors file, an index JSON, or a directory that contains either (`model.safetensors.index.json` is
  /// preferred to `model.safetensors`). Checks header length, JSON form, offsets (inside the file, no overlap, no hole,
  /// size = product of dims x element size), duplicate names between shards, and that index and shards agree.
  static Expected<Safetensors> open(const std::string& path);
  static Expected<Safetensors> parse(std::shared_ptr<const MappedFile> file);

  /// Sorted by name.
  const std::vector<SafeTensor>& tensors() const { return tensors_; }
  /// Sorted by name. Checkpoints contain buffers that no model needs, of any type. Such a tensor is an error only if
  /// the caller needs it.
  const std::vector<UnreadTensor>& unread() const { return unread_; }
  const SafeTensor* find(std::string_view name) const;
  /// The texts of the header's `__metadata__`, which programs may use as they like; none for shards.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::vector<std::shared_ptr<const MappedFile>>& files() const { return files_; }

 private:
  static Expected<Safetensors> open_index(const std::string& path);

  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<SafeTensor> tensors_;
  std::vector<UnreadTensor> unread_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace dllm
