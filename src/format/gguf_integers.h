#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/gguf.h"

namespace dllm::gguf {

/// Which tensors of a file are lists of integers (integer_bytes()): index, and bytes of a number; ascending.
using IntegerPlaces = std::vector<std::pair<std::uint64_t, std::size_t>>;

/// Why a tensor of this shape is no list that readers take: words that follow its name.
std::optional<std::string> list_problem(std::span<const std::int64_t> shape);

/// Bytes of the tensor at `index` in the file.
std::uint64_t bytes_of(const GgufTensor& tensor, std::uint64_t index, const IntegerPlaces& places);

/// Moves the lists out of `tensors`, and what belongs to them out of `infos`.
std::vector<GgufIntegers> take_integers(const IntegerPlaces& places, std::vector<GgufTensor>& tensors,
                                        std::vector<std::uint64_t>& infos);

}  // namespace dllm::gguf
