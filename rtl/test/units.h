#pragma once

#include <cstdint>
#include <string>

namespace dllm::rtl {

/// The result of running random and corner-case vectors through a unit.
struct UnitResult {
  std::uint64_t vectors = 0, wrong = 0;
  int cycles = 0;     ///< from row to result; -1 if it varies
  std::string first;  ///< the first wrong vector
};

/// Vector lanes of a model: 8 or 64. Each is compared bit for bit with the functional machine's own code.
UnitResult check_max_index(int vlen, std::uint64_t vectors);
UnitResult check_row_sum(int vlen, std::uint64_t vectors);
UnitResult check_top_mask(int vlen, std::uint64_t vectors);
/// Every one of the 65,536 arguments.
UnitResult check_exp();
UnitResult check_reciprocal();
UnitResult check_sqrt();
UnitResult check_add(std::uint64_t vectors);
UnitResult check_multiply(std::uint64_t vectors);
UnitResult check_wide_multiply(std::uint64_t vectors);  ///< FP32

}  // namespace dllm::rtl
