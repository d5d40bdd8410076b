#pragma once

#include <cstdint>
#include <vector>

namespace dllm::npu {

/// Replaces data in runs without them (RunOptions::data = false): how rows choose experts.
struct ChoiceAssumption {
  bool balanced = false;    ///< round-robin over lanes; else uniformly at random, without repetition within a row
  std::uint64_t seed = 1;   ///< of the random choice
  std::uint32_t lanes = 0;  ///< rows choose only among this many first lanes; 0: among all
};
/// A V_RED_MAX_IDX whose result decides what the program does next.
struct ChoiceSite {
  std::uint32_t instruction = 0;
  std::uint32_t slot = 0;    ///< differs between rows that are chosen for at the same time
  bool first = false;        ///< of a row
  std::uint32_t count = 0;   ///< choices per row
  std::uint32_t lanes = 0;   ///< to choose among
  std::uint32_t before = 0;  ///< lanes of the rows that were searched before this one; the result is counted from here
};
struct ProgramChoices {
  ChoiceAssumption assumption;
  std::vector<ChoiceSite> sites;  ///< ascending
};

}  // namespace dllm::npu
