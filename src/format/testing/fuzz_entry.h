#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "format/gguf.h"
#include "format/npy.h"
#include "format/safetensors.h"
#include "format/safetensors_index.h"

/// The bodies of the fuzz targets, which tests replay over the corpus: parse, and use everything that was accepted.
namespace dllm {

/// Any file must either parse or give a reason; a violation ends the process, which is how a fuzzer detects it.
inline void fuzz_require(bool condition) {
  if (!condition) __builtin_trap();
}

/// Decodes the first and the last block, so that sanitizers check that `data` is complete.
inline void fuzz_decode(TensorType type, const Shape& shape, std::span<const std::byte> data) {
  const Codec& format = codec(type);
  fuzz_require(static_cast<std::int64_t>(data.size()) == format.row_bytes(element_count(shape)));
  std::vector<float> block(static_cast<std::size_t>(format.block_elems));
  format.dequantize(data.data(), block.data(), format.block_elems);
  format.dequantize(data.data() + data.size() - format.block_bytes, block.data(), format.block_elems);
}

inline void fuzz_metadata(const Metadata& metadata) {
  for (const auto& [key, value] : metadata.entries()) {
    const bool used[] = {metadata.integer(key).has_value(),  metadata.number(key).has_value(),
                         metadata.boolean(key).has_value(),  metadata.string(key).has_value(),
                         metadata.integers(key).has_value(), metadata.numbers(key).has_value(),
                         metadata.strings(key).has_value()};
    bool any = (value.type == MetaType::kArray && value.element == MetaType::kBool) ||
               std::holds_alternative<OpaqueValue>(value.payload);  // have no getter
    for (const bool one : used) any = any || one;
    fuzz_require(any && metadata.find(key) == &value);
  }
}

inline void fuzz_gguf(std::span<const std::byte> bytes) {
  const auto file = GgufFile::parse(MappedFile::wrap(bytes, "input"));
  if (!file) {
    fuzz_require(!file.error().what.empty() && file.error().where.starts_with("input, offset 0x"));
    return;
  }
  fuzz_metadata(file->metadata());
  for (const GgufTensor& tensor : file->tensors()) {
    fuzz_require(file->find_tensor(tensor.name) == &tensor && tensor.offset % file->alignment() == 0);
    fuzz_decode(tensor.type, tensor.shape, tensor.data);
  }
}

inline void fuzz_safetensors(std::span<const std::byte> bytes) {
  if (const auto index = parse_safetensors_index(bytes, "input"); index)
    for (const auto& [tensor, file] : *index) fuzz_require(file.find('/') == std::string::npos);
  const auto file = Safetensors::parse(MappedFile::wrap(bytes, "input"));
  if (!file) {
    fuzz_require(!file.error().what.empty() && file.error().where.starts_with("input, offset 0x"));
    return;
  }
  for (const SafeTensor& tensor : file->tensors()) {
    fuzz_require(file->find(tensor.name) == &tensor);
    fuzz_decode(tensor.type, tensor.shape, tensor.data);
  }
}

inline void fuzz_npy(std::span<const std::byte> bytes) {
  const auto array = parse_npy({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "input");
  if (!array) {
    fuzz_require(!array.error().what.empty());
    return;
  }
  std::size_t count = 1;
  for (const std::size_t extent : array->shape) count *= extent;
  fuzz_require(count == array->values.size());
}

}  // namespace dllm
