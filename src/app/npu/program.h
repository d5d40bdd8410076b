#pragma once

#include <string>

#include "app/cli/terminal.h"
#include "dllm/error.h"
#include "npu_core/assembler/program.h"

namespace dllm::app {

/// Reads a program by path: files named *.asm or *.s, and "-", are assembly; others contain words, as bytes or
/// hexadecimal text. `half_scalars`: as in AssemblerOptions. Errors: kIo, kInvalidFile with file, line and column.
Expected<npu::Program> open_npu_program(const std::string& path, Terminal& terminal, bool half_scalars = false);

}  // namespace dllm::app
