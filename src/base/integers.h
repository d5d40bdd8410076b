#pragma once

#include <bit>
#include <cstdint>

namespace dllm {

/// a / b rounded up, for a >= 0 and b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
/// The smallest multiple of b that is at least a, for a >= 0 and b > 0.
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }
/// log2 of a power of two.
constexpr int log2_exact(std::int64_t power) { return std::countr_zero(static_cast<std::uint64_t>(power)); }
/// log2 rounded up, for value >= 1.
constexpr int log2_ceil(std::int64_t value) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value - 1)));
}

}  // namespace dllm
