#include "quant/importance.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/try.h"
#include "format/byte_cursor.h"
#include "format/gguf.h"
#include "format/mapped_file.h"

namespace dllm {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";

std::vector<float> float_values(const GgufTensor& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), tensor.data.data(), values.size() * sizeof(float));
  return values;
}

Error damaged(std::string what, const std::string& where) {
  return {ErrorCode::kInvalidFile, std::move(what), where, "an importance matrix of llama-imatrix is needed"};
}

/// Divides each expert's sums by its count; an expert that was never chosen has ones, as in llama-quantize.
Expected<std::vector<float>> means(const GgufTensor& sums, const GgufTensor* counts) {
  if (counts == nullptr || sums.type != TensorType::kF32 || counts->type != TensorType::kF32)
    return damaged("sums without counts, or not of type F32", sums.name);
  std::vector<float> values = float_values(sums);
  const std::vector<float> by = float_values(*counts);
  if (by.empty() || values.size() % by.size() != 0)
    return damaged(fmt::format("{} sums for {} counts", values.size(), by.size()), sums.name);
  const std::size_t columns = values.size() / by.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float count = std::round(by[i / columns]);
    values[i] = count > 0.0f ? values[i] / count : 1.0f;
  }
  return values;
}

}  // namespace

Expected<Importance> Importance::open(const std::string& path) {
  DLLM_TRY(const auto file, MappedFile::open(path));
  const std::span<const std::byte> bytes = file->bytes();
  const bool gguf = bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
  DLLM_TRY(Importance result, gguf ? read_gguf(path) : parse_old(bytes, path));
  DLLM_CHECK_OK(file->check());
  result.file_ = std::filesystem::path(path).filename().string();
  return result;
}

Expected<Importance> Importance::read_gguf(const std::string& path) {
  DLLM_TRY(const GgufFile file, GgufFile::open(path));
  Importance result;
  for (const GgufTensor& tensor : file.tensors()) {
    if (!tensor.name.ends_with(kSums)) continue;
    std::string matrix = tensor.name.substr(0, tensor.name.size() - kSums.size());
    DLLM_TRY(std::vector<float> values, means(tensor, file.find_tensor(matrix + std::string(kCounts))));
    DLLM_CHECK_OK(result.add(std::move(matrix), std::move(values)));
  }
  if (result.values_.empty()) return damaged("the file has no importance matrix", path);
  DLLM_TRY(const auto chunks, file.metadata().integer("imatrix.chunk_count"));
  result.chunks_ = chunks.value_or(0);
  DLLM_TRY(const auto* datasets, file.metadata().strings("imatrix.datasets"));
  if (datasets != nullptr && !datasets->empty()) result.dataset_ = datasets->front();
  return result;
}

Expected<Importance> Importance::parse_old(std::span<const std::byte> bytes, const std::string& name) {
  ByteCursor cursor(bytes, name);
  Importance result;
  DLLM_TRY(const auto count, cursor.read<std::int32_t>("the number of matrices"));
  if (count < 1) return damaged("the file has no importance matrix", name);
  for (std::int32_t i = 0; i < count; ++i) {
    DLLM_TRY(const auto length, cursor.read<std::int32_t>("the length of a name"));
    if (length < 0) return damaged("a name of negative length", name);
    DLLM_TRY(const auto text, cursor.take(static_cast<std::uint64_t>(length), "a name"));
    DLLM_TRY(const auto calls, cursor.read<std::int32_t>("a number of calls"));
    DLLM_TRY(const auto size, cursor.read<std::int32_t>("a number of columns"));
    if (size < 1) return damaged("a matrix without columns", name);
    DLLM_TRY(const auto data, cursor.take(static_cast<std::uint64_t>(size) * sizeof(float), "a matrix"));
    std::vector<float> values(static_cast<std::size_t>(size));
    std::memcpy(values.data(), data.data(), data.size());
    // The file has means times calls.
    for (float& value : values) value = calls > 0 ? value / static_cast<float>(calls) : value;
    DLLM_CHECK_OK(result.add(std::string(reinterpret_cast<const char*>(text.data()), text.size()), std::move(values)));
  }
  if (cursor.remaining() < 8) return result;  // files of early versions end here
  DLLM_TRY(const auto chunks, cursor.read<std::int32_t>("the number of chunks"));
  DLLM_TRY(const auto length, cursor.read<std::int32_t>("the length of the data set's name"));
  result.chunks_ = chunks;
  if (length > 0) {
    DLLM_TRY(const auto text, cursor.take(static_cast<std::uint64_t>(length), "the data set's name"));
    result.dataset_.assign(reinterpret_cast<const char*>(text.data()), text.size());
  }
  return result;
}

Expected<void> Importance::add(std::string matrix, std::vector<float> values) {
  for (const float value : values)
    if (!(std::isfinite(value) && value >= 0.0f))
      return damaged(fmt::format("{} is no mean of squares", value), matrix);
  values_[std::move(matrix)] = std::move(values);
  return {};
}

std::span<const float> Importance::find(std::string_view matrix) const {
  const auto found = values_.find(matrix);
  return found == values_.end() ? std::span<const float>() : std::span<const float>(found->second);
}

}  // namespace dllm
