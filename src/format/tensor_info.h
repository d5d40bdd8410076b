#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/quote_name.h"
#include "numerics/tensor_type.h"

namespace dllm {

/// Shape in GGML's convention: dims[0] is the contiguous one (row length), the slowest comes last. 1 to 4 entries, all
/// positive; a matrix that maps K inputs to N outputs has dims {K, N}.
using Shape = std::vector<std::int64_t>;

inline constexpr std::size_t kMaxDims = 4;

std::int64_t element_count(const Shape& shape);

/// "[128, 768]"
std::string to_string(const Shape& shape);

/// Number of rows: product of all dims but the first.
std::int64_t row_count(const Shape& shape);

/// The numbers of a list of integers that have 8 or 4 bytes each.
std::vector<std::int64_t> whole_numbers(std::span<const std::byte> list, std::size_t bytes);

/// Why `shape` cannot be stored in this format, as the rest of a sentence about the tensor ("has 5 dimensions instead
/// of 1 to 4"); nullopt if it can, and then element and byte counts fit in an int64.
std::optional<std::string> shape_problem(const Shape& shape, const Codec& codec);

}  // namespace dllm
