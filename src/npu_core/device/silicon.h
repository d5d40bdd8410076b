#pragma once

#include <cstdint>

#include "npu_core/device/issue_keys.h"

// Parts of the area model (area.cpp) that switch, and therefore cost energy too.

namespace dllm::npu {

struct Device;

/// Of an access to SRAM, relative to one port's.
double port_energy(std::int64_t ports);

/// Of one lane, um2: output latches of all pipes and the paths from them to the operands of every start; operand and
/// result registers of each start beyond the first.
double issue_um2_per_lane(const IssueKeys& issue);

/// Of one lane, um2: what its units have more than the published synthesis, because [latency] and clock.nominal_ghz
/// leave them less time; negative for more time.
double latency_um2_per_lane(const Device& device);

}  // namespace dllm::npu
