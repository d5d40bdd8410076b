#pragma once

#include <optional>
#include <random>
#include <vector>

#include "npu_core/assembler/program.h"

namespace dllm::npu {

/// Replaces data at a program's choice sites: gives the result of V_RED_MAX_IDX in a run without data. Deterministic
/// for a program.
class ChoiceSource {
 public:
  explicit ChoiceSource(const ProgramChoices& choices) : choices_(choices), random_(choices.assumption.seed) {}

  /// The instruction's resulting lane; nullopt if it is not a site.
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
