#pragma once

#include <iterator>
#include <utility>

#include "dllm/generate.h"

namespace dllm {

// The members of VirtualParts and VirtualEnergy with their names in results, in the order of results: who adds,
// multiplies or writes them goes through these.
inline constexpr std::pair<const char*, double VirtualParts::*> kVirtualParts[] = {
    {"array", &VirtualParts::array},           {"vector", &VirtualParts::vector},   {"memory", &VirtualParts::memory},
    {"dispatch", &VirtualParts::dispatch},     {"staging", &VirtualParts::staging}, {"host", &VirtualParts::host},
    {"contention", &VirtualParts::contention}, {"refresh", &VirtualParts::refresh}};
inline constexpr std::pair<const char*, double VirtualEnergy::*> kVirtualEnergy[] = {
    {"compute", &VirtualEnergy::compute},
    {"dram", &VirtualEnergy::dram},
    {"standby", &VirtualEnergy::standby},
    {"host_active", &VirtualEnergy::host_active},
    {"host_idle", &VirtualEnergy::host_idle}};
static_assert(sizeof(VirtualParts) == std::size(kVirtualParts) * sizeof(double), "a part without a name");
static_assert(sizeof(VirtualEnergy) == std::size(kVirtualEnergy) * sizeof(double), "a consumer without a name");

}  // namespace dllm
