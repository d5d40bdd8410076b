#include "format/gguf_integers.h"

#include <fmt/format.h>

#include <ranges>

#include "format/gguf_format.h"
#include "numerics/tensor_type.h"

namespace dllm::gguf {

std::optional<std::string> list_problem(std::span<const std::int64_t> shape) {
  if (shape.size() != 1) return fmt::format("has {} dimensions: a list must have one", shape.size());
  if (shape[0] > kMostIntegers) return fmt::format("has {} numbers, at most {}", shape[0], kMostIntegers);
  return std::nullopt;
}

std::uint64_t bytes_of(const GgufTensor& tensor, std::uint64_t index, const IntegerPlaces& places) {
  for (const auto& [place, bytes] : places)
    if (place == index) return static_cast<std::uint64_t>(tensor.shape[0]) * bytes;
  return static_cast<std::uint64_t>(codec(tensor.type).row_bytes(element_count(tensor.shape)));
}

std::vector<GgufIntegers> take_integers(const IntegerPlaces& places, std::vector<GgufTensor>& tensors,
                                        std::vector<std::uint64_t>& infos) {
  std::vector<GgufIntegers> lists;
  for (const auto& [index, bytes] : places) {
    const GgufTensor& tensor = tensors[index];
    lists.push_back({tensor.name, whole_numbers(tensor.data, bytes)});
  }
  for (const auto& [index, bytes] : std::views::reverse(places)) {
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(index));
    infos.erase(infos.begin() + static_cast<std::ptrdiff_t>(index));
  }
  return lists;
}

}  // namespace dllm::gguf
