#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu_core/assembler/program.h"

namespace dllm::npu {

struct AssemblerOptions {
  std::string file = "program.asm";                     ///< for messages
  std::size_t max_instructions = std::size_t{1} << 24;  ///< limit on the expansion of macros and repetitions
  std::size_t max_errors = 20;                          ///< reading stops at this many
  bool half_scalars = false;  ///< numbers of S_LI_FP become FP16, for machines whose lanes are FP16; else BF16
};

/// A program, or all errors of its source, in reading order, at most one error per line and column.
struct Assembly {
  Program program;  ///< linked if there are no errors, else not usable
  std::vector<Error> errors;
};

/// PLENA assembly with the extensions listed in docs/guide/npu.md: labels, expressions, .const, .assert, .macro, .rep,
/// .loop, .profile and the pseudo instruction li. PLENA's and d-PLENA's generators write more than their manuals allow:
/// zeros for operands that an instruction does not have, hexadecimal register numbers (gpE); both are accepted. Errors:
/// kInvalidFile with file:line:column, the problem, and how to fix it.
Assembly assemble_all(std::string_view text, const AssemblerOptions& options = {});

/// The same with the first error only.
Expected<Program> assemble(std::string_view text, const AssemblerOptions& options = {});

}  // namespace dllm::npu
