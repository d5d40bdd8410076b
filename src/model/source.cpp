#include "model/source.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "base/try.h"

namespace dllm {

const SourceTensor* ModelSource::find(std::string_view tensor) const {
  for (const SourceTensor& candidate : tensors)
    if (candidate.name == tensor) return &candidate;
  return nullptr;
}

Expected<ModelSource> source_from_gguf(GgufFile file) {
  ModelSource source;
  source.name = file.file().name();
  source.metadata = file.metadata();
  source.owner = file.shared_file();
  source.tensors.reserve(file.tensors().size());
  for (const GgufTensor& tensor : file.tensors())
    source.tensors.push_back({tensor.name, tensor.type, tensor.shape, tensor.data, 0, file.file().mapped()});
  return source;
}

Expected<ModelSource> open_source(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return source_from_hf(path);
  DLLM_TRY(auto file, GgufFile::open(path));
  return source_from_gguf(std::move(file));
}

std::string size_label(const std::vector<SourceTensor>& tensors) {
  double count = 0;
  for (const SourceTensor& tensor : tensors) count += static_cast<double>(element_count(tensor.shape));
  for (const auto& [unit, letter] : {std::pair(1e12, 'T'), std::pair(1e9, 'B'), std::pair(1e6, 'M')})
    if (count > unit) return fmt::format("{:.{}f}{}", count / unit, count / unit < 9.5 ? 1 : 0, letter);
  return fmt::format("{:.{}f}K", count / 1e3, count / 1e3 < 9.5 ? 1 : 0);
}

std::span<const std::byte> tensor_bytes(const SourceTensor& tensor, std::vector<std::byte>& buffer) {
  if (tensor.permute_heads == 0) return tensor.data;
  buffer.resize(tensor.data.size());
  const std::int64_t rows = tensor.shape.size() > 1 ? row_count(tensor.shape) : tensor.shape[0];
  permute_qk(tensor.data, tensor.permute_heads, static_cast<std::int64_t>(tensor.data.size()) / rows, buffer);
  return buffer;
}

void permute_qk(std::span<const std::byte> data, std::int64_t heads, std::int64_t row_bytes, std::span<std::byte> out) {
  const std::int64_t rows = static_cast<std::int64_t>(data.size()) / row_bytes;
  const std::int64_t head_dim = rows / heads;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t head = row / head_dim, within = row % head_dim;
    const std::int64_t from = head * head_dim + (within % 2) * (head_dim / 2) + within / 2;
    std::memcpy(out.data() + row * row_bytes, data.data() + from * row_bytes, static_cast<std::size_t>(row_bytes));
  }
}

}  // namespace dllm
