#include "quant/activation_file.h"

#include <cstring>

#include "base/try.h"

namespace dllm {

Expected<ActivationWriter> ActivationWriter::create(const std::string& path) {
  DLLM_TRY(OutputFile file, OutputFile::create(path));
  return ActivationWriter(std::move(file));
}

Expected<void> ActivationWriter::append(const CanvasChunk& chunk, const std::vector<ValueId>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  DLLM_CHECK_OK(file_.append(&count, sizeof(count)));
  for (const ValueId id : values) {
    const ActivationRows& rows = chunk.values.at(id);
    const std::int64_t head[] = {id, rows.rows(), rows.width};
    DLLM_CHECK_OK(file_.append(head, sizeof(head)));
    DLLM_CHECK_OK(file_.append(rows.values.data(), rows.values.size() * sizeof(float)));
  }
  return {};
}

Expected<ActivationReader> ActivationReader::open(const std::string& path) {
  DLLM_TRY(auto file, MappedFile::open(path));
  return ActivationReader(std::move(file));
}

Expected<std::int64_t> ActivationReader::number() {
  std::int64_t value = 0;
  if (file_->bytes().size() - at_ < sizeof(value))
    return Error{ErrorCode::kInvalidFile, "the file of activations is incomplete", file_->name(),
                 "remove its directory to start anew"};
  std::memcpy(&value, file_->bytes().data() + at_, sizeof(value));
  at_ += sizeof(value);
  return value;
}

Expected<void> ActivationReader::read(CanvasChunk& chunk) {
  DLLM_TRY(const std::int64_t count, number());
  for (std::int64_t i = 0; i < count; ++i) {
    DLLM_TRY(const std::int64_t id, number());
    DLLM_TRY(const std::int64_t rows, number());
    DLLM_TRY(const std::int64_t width, number());
    const std::size_t left = (file_->bytes().size() - at_) / sizeof(float);
    if (rows < 0 || width <= 0 || static_cast<std::size_t>(rows) > left / static_cast<std::size_t>(width))
      return Error{ErrorCode::kInvalidFile, "the file of activations is damaged", file_->name(),
                   "remove its directory to start anew"};
    ActivationRows& values = chunk.values[static_cast<ValueId>(id)];
    values.width = width;
    values.values.resize(static_cast<std::size_t>(rows * width));
    const std::size_t bytes = values.values.size() * sizeof(float);
    if (bytes > 0) std::memcpy(values.values.data(), file_->bytes().data() + at_, bytes);
    at_ += bytes;
  }
  return {};
}

}  // namespace dllm
