#pragma once

#include <array>
#include <bitset>
#include <string>
#include <vector>

#include "npu_core/machine/machine.h"
#include "npu_core/machine/resolve.h"

namespace dllm::rtl {

/// Corner classes of an executed instruction. Which of them an instruction can have follows from its table entry.
enum class Corner : std::uint8_t {
  kMaskOff,      ///< without a mask
  kMaskPartial,  ///< some lanes off
  kMaskEmpty,    ///< all lanes off
  kInPlace,      ///< the target is a source
  kOneRowTwice,  ///< both sources are one row
  kFirstRow,     ///< an access begins at word or row 0
  kLastRow,      ///< an access ends at the end of its memory
  kNan,          ///< a source row has a NaN
  kInfinity,
  kSubnormal,
  kMinusZero,
  kNoElements,  ///< length 0
  kOneElement,
  kSeveralRows,   ///< more elements than a row has
  kZeroRegister,  ///< the result goes to gp0 or f0
  kSectionOfOne,  ///< segment_length 1
  kSectionOfAll,  ///< segment_length VLEN
  kTaken,         ///< a branch, or back to the loop's body
  kNotTaken,
  kLeavesLoop,
  kInLoop,  ///< a loop is open
  kCount
};

/// Functional coverage: instruction x corner class. Counts what programs execute; see on_issue().
class Coverage {
 public:
  void count(const npu::IssueEvent& event);
  /// Instruction and class pairs that can occur, and those that did.
  std::size_t possible() const;
  std::size_t covered() const;
  /// Names of those that did not: "V_EXP_V: last row".
  std::vector<std::string> missing() const;

 private:
  static constexpr std::size_t kClasses = static_cast<std::size_t>(Corner::kCount);
  using Set = std::bitset<kClasses>;
  static Set possible_of(npu::Op op);

  std::array<Set, npu::kOpCount> seen_ = {};
};

/// The vector, scalar and control instructions that the engine has.
bool in_engine(npu::Op op);

}  // namespace dllm::rtl
