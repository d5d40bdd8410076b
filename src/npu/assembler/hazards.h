#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu/assembler/program.h"

namespace dllm::npu {

/// A rule that the instruction set leaves to software and that a program seems to break. The machine computes in
/// program order in any case; a finding means that another implementation may read other values.
struct Hazard {
  std::uint32_t index = 0;  ///< instruction
  std::string what;
};

/// Reads the program text once, in order, without executing it; loops are walked once. Reports
/// - registers read before anything wrote them (they hold 0 after reset, which is rarely meant), writes to gp0 and f0;
/// - loop counters written inside their loop;
/// - accumulators written out that nothing filled, or left unwritten at the end;
/// - CSRs that shape an accumulator changed while it holds a partial sum;
/// - transfers with a tag that no later C_FENCE covers;
/// - S_LUI_INT immediates whose upper bits are lost; instructions after C_BREAK that nothing reaches.
/// Addresses are known only at run time: machine/hazard_monitor.h checks the order of transfers and uses there.
std::vector<Hazard> check_hazards(const Program& program);

}  // namespace dllm::npu
