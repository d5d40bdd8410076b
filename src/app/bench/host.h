#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace dllm::app {

/// CPU, CPUs that this process may use, memory, frequency governor, supported kernel sets, system, load average.
nlohmann::ordered_json host_json();

/// Version, compiler, flags.
nlohmann::ordered_json build_json();

/// "2026-11-21T12:00:00Z"
std::string utc_time();

/// Peak resident memory of the process since the last reset, in bytes; 0 if the system does not report it.
std::int64_t peak_resident_bytes();
/// Linux only; elsewhere the peak covers the whole process.
void reset_peak_resident();

}  // namespace dllm::app
