#pragma once

#include <optional>
#include <random>
#include <vector>

#include "npu/assembler/program.h"

namespace dllm::npu {

/// Stands in for data at a program's choice sites: what V_RED_MAX_IDX finds in a run without data. Deterministic in the
/// program.
class ChoiceSource {
 public:
  explicit ChoiceSource(const ProgramChoices& choices) : choices_(choices), random_(choices.assumption.seed) {}

  /// The lane that the instruction finds; nullopt if it is no site.
  std::optional<std::uint32_t> lane(std::uint32_t instruction);

 private:
  struct Row {
    std::uint32_t base = 0;
    std::vector<std::uint32_t> chosen;
  };

  const ProgramChoices& choices_;
  std::mt19937_64 random_;
  std::vector<Row> rows_;  ///< by slot
  std::uint32_t next_ = 0;
};

}  // namespace dllm::npu
