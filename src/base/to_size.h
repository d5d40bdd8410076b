#pragma once

#include <cassert>
#include <concepts>
#include <cstddef>

namespace dllm {

/// A count, position or token as the index of a container. Negative ones are bugs of the program.
constexpr std::size_t to_size(std::integral auto value) {
  if constexpr (std::signed_integral<decltype(value)>) assert(value >= 0);
  return static_cast<std::size_t>(value);
}

}  // namespace dllm
