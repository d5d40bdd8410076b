#pragma once

#include <string>

#include "npu_compiler/sweep/run.h"

namespace dllm::npu {

/// How far a program may be slower than its point says.
inline constexpr double kFrontTolerance = 0.05;

/// Searches a mapping for every point of the front, compiles and simulates both of its steps, and adds what came out to
/// `report.simulated`. A point that has no programs, or one that is slower than its priced schedule by more than
/// kFrontTolerance, gets that as its error and leaves the front, which is marked anew; points that join it are
/// simulated too. `directory`: where mappings and timing reports are kept; "": nowhere. Errors: of the model shape;
/// kCancelled by progress.
Expected<void> simulate_front(const SweepSpec& spec, SweepReport& report, const std::string& directory,
                              const SweepProgress& progress);

}  // namespace dllm::npu
