#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "dllm/error.h"
#include "npu/assembler/program.h"

namespace dllm::npu {

struct AssemblerOptions {
  std::string file = "program.asm";                     ///< for messages
  std::size_t max_instructions = std::size_t{1} << 24;  ///< bound on what macros and repetitions may expand to
};

/// PLENA assembly with the conveniences listed in docs/npu.md: labels, expressions, .const, .assert, .macro, .rep,
/// .loop, .profile and the pseudo instruction li. Errors: kInvalidFile with file:line:column, what is wrong there, and
/// how to mend it.
Expected<Program> assemble(std::string_view text, const AssemblerOptions& options = {});

}  // namespace dllm::npu
