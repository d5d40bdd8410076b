#pragma once

#include <cstdint>
#include <string>

namespace dllm::rtl {

/// What a run of random vectors and corners through a unit found.
struct UnitResult {
  std::uint64_t vectors = 0, wrong = 0;
  int cycles = 0;     ///< from a row to its result, of every vector; -1 if they differ
  std::string first;  ///< the first wrong vector
};

/// Vector lanes of a model: 8 or 64. Each compares with the functional machine's own code, bit for bit.
UnitResult check_max_index(int vlen, std::uint64_t vectors);
UnitResult check_row_sum(int vlen, std::uint64_t vectors);
UnitResult check_top_mask(int vlen, std::uint64_t vectors);
/// Every one of the 65,536 arguments.
UnitResult check_exp();
UnitResult check_reciprocal();
UnitResult check_add(std::uint64_t vectors);
UnitResult check_multiply(std::uint64_t vectors);

}  // namespace dllm::rtl
