#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "npu/timing/simulator.h"

namespace dllm::npu {

/// A timing report as JSON (timing_json), simulated now or earlier.
struct MemoisedTiming {
  Cycle total = 0;
  nlohmann::ordered_json report;
  bool from_cache = false;
};

/// Everything that a report depends on: program, device, machine, issue, version of the model of time. 32 hexadecimal
/// digits.
std::string timing_key(const Device& device, const MachineConfig& machine, const Program& program,
                       const TimingOptions& options);

/// The report of a program from `directory`, where it is kept under its key, else from a simulation, which is kept
/// then.
/// "": nothing is kept. A file that cannot be read, or holds something else, counts as absent; one that cannot be
/// written is no error. Errors: of simulate().
Expected<MemoisedTiming> memoised_timing(const Device& device, const MachineConfig& machine, const Program& program,
                                         const TimingOptions& options, const std::string& directory);

}  // namespace dllm::npu
