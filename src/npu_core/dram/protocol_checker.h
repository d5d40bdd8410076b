#pragma once

#include <string>
#include <vector>

#include "npu_core/dram/command.h"
#include "npu_core/dram/config.h"

namespace dllm::npu::dram {

/// Checks a command trace against the standard, independently of the controller: it shares no code and no state with
/// it. Every pair of commands within the longest constraint of each other is checked against every rule, states of the
/// banks are replayed, both command buses and the data bus must not be used twice, and refreshes must come on time.
///
/// Returns violations, at most `limit` lines: "ch 0 pc 1 t=120 RD bank 3: tRCD 14 after ACT at 110". Quadratic in the
/// commands per longest constraint: for tests and short traces.
std::vector<std::string> check_protocol(const std::vector<CommandRecord>& trace, const MemoryConfig& config,
                                        std::size_t limit = 10);

}  // namespace dllm::npu::dram
