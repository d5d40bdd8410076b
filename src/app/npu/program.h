#pragma once

#include <string>

#include "app/cli/flags.h"
#include "app/cli/terminal.h"
#include "dllm/error.h"
#include "npu_core/assembler/program.h"

namespace dllm::app {

/// --words of the verbs that read programs.
class WordsFlag {
 public:
  void add(Flags& flags);
  npu::WordSource source() const;

 private:
  std::string name_{npu::kWordSources[0]};
};

/// Reads a program by path: files named *.asm or *.s, and "-", are assembly; others contain words, as bytes or
/// hexadecimal text, with the opcodes of `source`. `half_scalars`: as in AssemblerOptions. Errors: kIo, kInvalidFile
/// with file, line and column.
Expected<npu::Program> open_npu_program(const std::string& path, Terminal& terminal,
                                        npu::WordSource source = npu::WordSource::kOurs, bool half_scalars = false);

}  // namespace dllm::app
