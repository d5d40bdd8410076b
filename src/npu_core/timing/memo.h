#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "npu_core/timing/simulator.h"

namespace dllm::npu {

/// A timing report as JSON (timing_json), simulated now or earlier.
struct MemoisedTiming {
  Cycle total = 0;
  nlohmann::ordered_json report;
  bool from_cache = false;
  std::string doubt;  ///< why an existing file is not used, or the report could not be stored; "": neither
};

/// Hash of everything that a report depends on: program, device, machine, issue, version of the timing model. 32
/// hexadecimal digits.
std::string timing_key(const Device& device, const MachineConfig& machine, const Program& program,
                       const TimingOptions& options);

/// The text of the file that stores a report.
std::string kept_report_text(const std::string& key, const nlohmann::ordered_json& report);

/// Parses such a text. Errors (kInvalidFile, `what` says why it is rejected): not JSON, another version or key, a wrong
/// checksum, figures that are impossible with `options`, too deep nesting.
Expected<nlohmann::ordered_json> parse_kept_report(std::string_view text, const std::string& key,
                                                   const TimingOptions& options);

/// The report of a program from `directory`, where it is stored under its key; otherwise simulates and stores
/// it. "": nothing is stored. Files are checked: unless version, key, checksum and the figures' sums are right,
/// the report is computed again (`doubt` says why). Failing to write one is not an error. Errors: of
/// simulate().
Expected<MemoisedTiming> memoised_timing(const Device& device, const MachineConfig& machine, const Program& program,
                                         const TimingOptions& options, const std::string& directory);

}  // namespace dllm::npu
