#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu/assembler/program.h"

namespace dllm::npu {

struct AssemblerOptions {
  std::string file = "program.asm";                     ///< for messages
  std::size_t max_instructions = std::size_t{1} << 24;  ///< bound on what macros and repetitions may expand to
  std::size_t max_errors = 20;                          ///< reading stops at this many
};

/// A program, or all that is wrong with its source, in the order of reading, at most one error per line and column.
struct Assembly {
  Program program;  ///< linked if there are no errors, else not to be used
  std::vector<Error> errors;
};

/// PLENA assembly with the conveniences listed in docs/guide/npu.md: labels, expressions, .const, .assert, .macro,
/// .rep, .loop, .profile and the pseudo instruction li. PLENA's and d-PLENA's generators write more than their manuals
/// say: zeros for operands that an instruction has not, hexadecimal register numbers (gpE); both are taken.
/// Errors: kInvalidFile with file:line:column, what is wrong there, and how to mend it.
Assembly assemble_all(std::string_view text, const AssemblerOptions& options = {});

/// The same with the first error only.
Expected<Program> assemble(std::string_view text, const AssemblerOptions& options = {});

}  // namespace dllm::npu
