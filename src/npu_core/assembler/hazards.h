#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_core/assembler/program.h"

namespace dllm::npu {

/// A rule that the instruction set leaves to software and that a program seems to violate. This machine computes in
/// program order anyway; a finding means that another implementation may read other values.
struct Hazard {
  std::uint32_t index = 0;  ///< instruction
  std::string what;
};

/// Reads the program text once, in order, without executing it; loop bodies are read once. Reports
/// - registers that are read before they are written (they hold 0 after reset), and writes to gp0 and f0;
/// - loop counters written inside their loop;
/// - accumulators that are written out empty, or not written out at the end;
/// - CSRs that control an accumulator's shape, changed while it holds a partial sum;
/// - transfers with a tag that no later C_FENCE covers;
/// - S_LUI_INT immediates whose upper bits are lost; unreachable instructions after C_BREAK.
/// Addresses are known only at run time: machine/hazard_monitor.h checks the order of transfers and accesses.
std::vector<Hazard> check_hazards(const Program& program);

}  // namespace dllm::npu
