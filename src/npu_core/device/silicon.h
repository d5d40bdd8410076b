#pragma once

#include <cstdint>

#include "npu_core/device/issue_keys.h"

// Parts of the area model (area.cpp) that switch, and therefore cost energy too.

namespace dllm::npu {

struct Device;

/// Energy of an access to SRAM with that many ports, relative to one port.
double port_energy(std::int64_t ports);

/// Area that [issue] adds to one lane, um2: output latches of all pipes and the paths from them to the operands of
/// every start; operand and result registers of each start beyond the first.
double issue_um2_per_lane(const IssueKeys& issue);

/// Area by which one lane's units exceed the published synthesis, um2, because [latency] and clock.nominal_ghz leave
/// them less time; negative where they leave more.
double latency_um2_per_lane(const Device& device);

}  // namespace dllm::npu
