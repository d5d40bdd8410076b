#include "quant/activation_file.h"

#include <cstring>

#include "base/try.h"

namespace dllm {

Expected<void> ActivationWriter::append(const CanvasChunk& chunk, const std::vector<ValueId>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  DLLM_CHECK_OK(file_.append(std::as_bytes(std::span(&count, 1))));
  for (const ValueId id : values) {
    const ActivationRows& rows = chunk.values.at(id);
    const std::int64_t head[] = {id, rows.rows(), rows.width};
    DLLM_CHECK_OK(file_.append(std::as_bytes(std::span(head))));
    DLLM_CHECK_OK(file_.append(std::as_bytes(std::span(rows.values))));
  }
  return {};
}

Expected<ActivationFile> ActivationFile::open(SealedFile sealed, const std::vector<ValueId>& values) {
  ActivationFile file(std::move(sealed));
  DLLM_CHECK_OK(file.index());
  for (const auto& chunk : file.chunks_)
    for (const ValueId id : values)
      if (!chunk.contains(id))
        return Error{ErrorCode::kInvalidFile, "the file of activations lacks a value", file.file_.name(), ""};
  return file;
}

Expected<std::int64_t> ActivationFile::number(std::size_t& at) const {
  std::int64_t value = 0;
  if (file_.payload().size() - at < sizeof(value))
    return Error{ErrorCode::kInvalidFile, "the file of activations is incomplete", file_.name(), ""};
  std::memcpy(&value, file_.payload().data() + at, sizeof(value));
  at += sizeof(value);
  return value;
}

Expected<void> ActivationFile::index() {
  const std::span<const std::byte> bytes = file_.payload();
  for (std::size_t at = 0; at < bytes.size();) {
    std::map<ValueId, StoredRows> chunk;
    DLLM_TRY(const std::int64_t count, number(at));
    for (std::int64_t i = 0; i < count; ++i) {
      DLLM_TRY(const std::int64_t id, number(at));
      DLLM_TRY(const std::int64_t rows, number(at));
      DLLM_TRY(const std::int64_t width, number(at));
      const std::size_t left = (bytes.size() - at) / sizeof(float);
      if (rows < 0 || width <= 0 || static_cast<std::size_t>(rows) > left / static_cast<std::size_t>(width))
        return Error{ErrorCode::kInvalidFile, "the file of activations is damaged", file_.name(), ""};
      const auto size = static_cast<std::size_t>(rows * width);
      // Everything before is of 4 or 8 bytes, so floats are aligned.
      chunk[static_cast<ValueId>(id)] = {width, {reinterpret_cast<const float*>(bytes.data() + at), size}};
      at += size * sizeof(float);
    }
    chunks_.push_back(std::move(chunk));
  }
  return {};
}

void ActivationFile::copy(std::size_t chunk, CanvasChunk& to) const {
  for (const auto& [id, stored] : chunks_[chunk]) {
    ActivationRows& values = to.values[id];
    values.width = stored.width;
    values.values.assign(stored.values.begin(), stored.values.end());
  }
}

void ActivationFile::drop(std::size_t chunk) const {
  for (const auto& [id, stored] : chunks_[chunk]) MappedFile::drop_pages(std::as_bytes(stored.values));
}

}  // namespace dllm
