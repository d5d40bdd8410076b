#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "format/mapped_file.h"
#include "format/tensor_info.h"

namespace dllm {

/// A tensor of a safetensors file. Only F32, F16 and BF16 are accepted (others are kUnsupported errors that name the
/// tensor). `shape` is in GGML order: the file's dims reversed; a 0-d tensor becomes {1}.
struct SafeTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  Shape shape;
  std::span<const std::byte> data;
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
  const SafeTensor* find(std::string_view name) const;
  const std::vector<std::shared_ptr<const MappedFile>>& files() const { return files_; }

 private:
  static Expected<Safetensors> open_index(const std::string& path);

  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<SafeTensor> tensors_;
};

}  // namespace dllm
