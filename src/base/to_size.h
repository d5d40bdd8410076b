#pragma once

#include <cassert>
#include <concepts>
#include <cstddef>
#include <type_traits>

namespace dllm {

/// A count, position or token as the index of a container. Negative ones are bugs of the program.
constexpr std::size_t to_size(std::integral auto value) {
  if constexpr (std::signed_integral<decltype(value)>) assert(value >= 0);
  return static_cast<std::size_t>(value);
}

/// An enumerator as the index of a table.
template <class Enum>
  requires std::is_enum_v<Enum>
constexpr std::size_t to_size(Enum value) {
  return static_cast<std::size_t>(value);
}

}  // namespace dllm
