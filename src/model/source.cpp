#include "model/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/try.h"

namespace dllm {

const SourceTensor* ModelSource::find(std::string_view tensor) const {
  for (const SourceTensor& candidate : tensors)
    if (candidate.name == tensor) return &candidate;
  return nullptr;
}

namespace {

/// The number of a key of a part. Errors: it is absent, or no integer.
Expected<std::int64_t> part_number(const GgufFile& file, const char* key) {
  DLLM_TRY(const auto value, file.metadata().integer(key));
  if (value) return *value;
  return Error{ErrorCode::kInvalidFile, fmt::format("the key '{}' is missing", key), file.file().name(),
               "it is no part of a split model, as its name says"};
}

/// Checks that the file is part `index` of `count`.
Expected<void> check_part(const GgufFile& file, std::int64_t index, std::int64_t count) {
  DLLM_TRY(const std::int64_t number, part_number(file, "split.no"));
  DLLM_TRY(const std::int64_t all, part_number(file, "split.count"));
  if (number == index && all == count) return {};
  return Error{ErrorCode::kInvalidFile,
               fmt::format("it is part {} of {}, and its name says {} of {}", number + 1, all, index + 1, count),
               file.file().name(), "fetch the parts again, all of one model"};
}

/// A model in several files: the first has the metadata, each has tensors.
Expected<ModelSource> source_from_parts(const std::vector<std::string>& paths) {
  ModelSource source;
  const auto owners = std::make_shared<std::vector<std::shared_ptr<const void>>>();
  std::optional<std::int64_t> tensors;
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    DLLM_TRY(GgufFile file, GgufFile::open_part(paths[i]));
    DLLM_CHECK_OK(check_part(file, static_cast<std::int64_t>(i), static_cast<std::int64_t>(paths.size())));
    if (i == 0) {
      DLLM_TRY(tensors, file.metadata().integer("split.tensors.count"));
    }
    DLLM_TRY(ModelSource part, source_from_gguf(std::move(file)));
    source.files.insert(source.files.end(), part.files.begin(), part.files.end());
    owners->push_back(part.owner);
    for (SourceTensor& tensor : part.tensors) {
      if (!names.insert(tensor.name).second)
        return Error{ErrorCode::kInvalidFile, fmt::format("the tensor '{}' is in two parts", tensor.name), paths[i],
                     ""};
      source.tensors.push_back(std::move(tensor));
    }
    if (i == 0) {
      source.name = std::move(part.name);
      source.metadata = std::move(part.metadata);
    }
  }
  if (tensors && *tensors != static_cast<std::int64_t>(source.tensors.size()))
    return Error{
        ErrorCode::kInvalidFile,
        fmt::format("the parts have {} tensors, and 'split.tensors.count' is {}", source.tensors.size(), *tensors),
        paths.front(), "fetch the parts again"};
  // What is written from it is one file.
  for (const char* key : {"split.no", "split.count", "split.tensors.count"}) source.metadata.erase(key);
  source.owner = owners;
  return source;
}

}  // namespace

Expected<ModelSource> source_from_gguf(GgufFile file) {
  ModelSource source;
  source.name = file.file().name();
  source.metadata = file.metadata();
  source.owner = file.shared_file();
  source.files = {file.shared_file()};
  source.tensors.reserve(file.tensors().size());
  for (const GgufTensor& tensor : file.tensors())
    source.tensors.push_back({tensor.name, tensor.type, tensor.shape, tensor.data, 0, file.file().mapped()});
  if (file.integers().empty()) return source;
  // Tokens are whole in float32: there are at most 2^24.
  const auto owner = std::make_shared<std::pair<std::shared_ptr<const void>, std::vector<std::vector<float>>>>();
  owner->first = source.owner;
  for (const GgufIntegers& list : file.integers()) {
    const auto& values = owner->second.emplace_back(list.values.begin(), list.values.end());
    source.tensors.push_back(
        {list.name, TensorType::kF32, {static_cast<std::int64_t>(values.size())}, std::as_bytes(std::span(values))});
  }
  source.owner = owner;
  return source;
}

Expected<ModelSource> open_source(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return source_from_hf(path);
  if (const auto parts = gguf_parts(path); parts.size() > 1) return source_from_parts(parts);
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

std::size_t byte_size(const SourceTensor& tensor) {
  std::size_t size = tensor.data.size();
  for (const auto& part : tensor.parts) size += part.size();
  return size;
}

std::span<const std::byte> tensor_bytes(const SourceTensor& tensor, std::vector<std::byte>& buffer) {
  if (!tensor.parts.empty()) {
    buffer.resize(byte_size(tensor));
    std::byte* at = buffer.data();
    for (const auto& part : tensor.parts) at = std::copy(part.begin(), part.end(), at);
    return buffer;
  }
  if (tensor.permute_heads == 0) return tensor.data;
  buffer.resize(tensor.data.size());
  const std::int64_t rows = tensor.shape.size() > 1 ? row_count(tensor.shape) : tensor.shape[0];
  permute_qk(tensor.data, tensor.permute_heads, static_cast<std::int64_t>(tensor.data.size()) / rows, buffer);
  return buffer;
}

namespace {

/// Appends the gate and up halves of a stack {width, 2 F, experts}.
Expected<void> split_experts(const SourceTensor& tensor, std::size_t at, std::string_view fused,
                             std::vector<SourceTensor>& split) {
  if (tensor.shape.size() != 3 || tensor.shape[1] % 2 != 0 || !tensor.parts.empty())
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("shape {} is not that of gates and ups of experts", to_string(tensor.shape)), tensor.name,
                 ""};
  const auto experts = static_cast<std::size_t>(tensor.shape[2]);
  const std::size_t half = tensor.data.size() / experts / 2;
  for (const std::size_t part : {std::size_t{0}, std::size_t{1}}) {
    SourceTensor piece = tensor;
    piece.name.replace(at, fused.size(), part == 0 ? ".ffn_gate_exps." : ".ffn_up_exps.");
    piece.shape[1] /= 2;
    piece.data = {};
    for (std::size_t e = 0; e < experts && half > 0; ++e)
      piece.parts.push_back(tensor.data.subspan((2 * e + part) * half, half));
    split.push_back(std::move(piece));
  }
  return {};
}

}  // namespace

Expected<std::vector<SourceTensor>> split_fused(const std::vector<SourceTensor>& tensors, std::int64_t q_rows,
                                                std::int64_t kv_rows) {
  constexpr std::string_view kFused = ".attn_qkv.", kFusedExperts = ".ffn_gate_up_exps.";
  std::vector<SourceTensor> split;
  split.reserve(tensors.size());
  for (const SourceTensor& tensor : tensors) {
    if (const std::size_t experts = tensor.name.find(kFusedExperts); experts != std::string::npos) {
      DLLM_CHECK_OK(split_experts(tensor, experts, kFusedExperts, split));
      continue;
    }
    const std::size_t at = tensor.name.find(kFused);
    if (at == std::string::npos) {
      split.push_back(tensor);
      continue;
    }
    const std::int64_t rows = tensor.shape.back();
    if (tensor.shape.size() > 2 || rows != q_rows + 2 * kv_rows)
      return Error{ErrorCode::kInvalidFile,
                   fmt::format("shape {} is not that of {} rows of Q and {} each of K and V", to_string(tensor.shape),
                               q_rows, kv_rows),
                   tensor.name, ""};
    // In a vector, each element is a row.
    const auto row_bytes = static_cast<std::int64_t>(tensor.data.size()) / rows;
    std::int64_t first = 0;
    for (const auto& [part, count] : {std::pair(".attn_q.", q_rows), {".attn_k.", kv_rows}, {".attn_v.", kv_rows}}) {
      SourceTensor piece = tensor;
      piece.name.replace(at, kFused.size(), part);
      piece.shape.back() = count;
      piece.data =
          tensor.data.subspan(static_cast<std::size_t>(first * row_bytes), static_cast<std::size_t>(count * row_bytes));
      split.push_back(std::move(piece));
      first += count;
    }
  }
  return split;
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
