#include "format/tensor_info.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

namespace dllm {

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) count *= dim;
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::int64_t row_count(const Shape& shape) {
  std::int64_t rows = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
  return rows;
}

std::vector<std::int64_t> whole_numbers(std::span<const std::byte> list, std::size_t bytes) {
  std::vector<std::int64_t> numbers;
  numbers.reserve(list.size() / bytes);
  for (std::size_t at = 0; at < list.size(); at += bytes) {
    std::int64_t wide = 0;
    std::int32_t narrow = 0;
    if (bytes == sizeof(wide))
      std::memcpy(&wide, list.data() + at, sizeof(wide));
    else
      std::memcpy(&narrow, list.data() + at, sizeof(narrow)), wide = narrow;
    numbers.push_back(wide);
  }
  return numbers;
}

std::optional<std::string> shape_problem(const Shape& shape, const Codec& codec) {
  if (shape.empty() || shape.size() > kMaxDims)
    return fmt::format("has {} dimensions instead of 1 to {}", shape.size(), kMaxDims);
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  std::int64_t bytes = codec.block_bytes;  // of the tensor, if each element were a block: an upper bound
  for (const std::int64_t dim : shape) {
    if (dim <= 0) return fmt::format("has the shape {}, but every dimension must be positive", to_string(shape));
    if (dim > kMax / bytes) return fmt::format("has the shape {}, which is too large for any file", to_string(shape));
    bytes *= dim;
  }
  if (shape[0] % codec.block_elems != 0)
    return fmt::format("has rows of {} elements, which are not a multiple of {}'s block of {}", shape[0], codec.name,
                       codec.block_elems);
  return std::nullopt;
}

}  // namespace dllm
