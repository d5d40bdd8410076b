#pragma once

#include <string>
#include <vector>

#include "answer/core_executor.h"

namespace dllm::rtl {

/// A program in assembler and what memory holds before it: PIECE=FILE as `dllm npu run --load` takes them.
struct ProgramRun {
  std::string program;  ///< file
  std::vector<std::string> loads;
};
/// Runs it on a core of the shape and on the machine; memory has 32 MiB. Returns what was executed. Errors: those of
/// CoreExecutor::run(), and files that cannot be read.
Expected<CoreTotals> run_program(const CoreShape& shape, const ProgramRun& run, MemoryTiming timing);

}  // namespace dllm::rtl
