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
  std::string doubt;  ///< why a file that was there is not used, or the report not kept; "": neither
};

/// Everything that a report depends on: program, device, machine, issue, version of the model of time. 32 hexadecimal
/// digits.
std::string timing_key(const Device& device, const MachineConfig& machine, const Program& program,
                       const TimingOptions& options);

/// The text of the file that keeps a report.
std::string kept_report_text(const std::string& key, const nlohmann::ordered_json& report);

/// The report in such a text. Errors (kInvalidFile, `what` says why it is not believed): not JSON, another version or
/// key, a wrong checksum, figures that no run of `options` has, nested too deeply.
Expected<nlohmann::ordered_json> parse_kept_report(std::string_view text, const std::string& key,
                                                   const TimingOptions& options);

/// The report of a program from `directory`, where it is kept under its key, else from a simulation, which is kept
/// then.
/// "": nothing is kept. Files are not believed: version, key, checksum and the figures' sums must be right, else the
/// report is computed again (`doubt` says why). One that cannot be written is no error. Errors: of simulate().
Expected<MemoisedTiming> memoised_timing(const Device& device, const MachineConfig& machine, const Program& program,
                                         const TimingOptions& options, const std::string& directory);

}  // namespace dllm::npu
