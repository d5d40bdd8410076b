#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "npu_compiler/runtime/memory_plan.h"

namespace dllm::npu {

/// Totals, the mappings by address with their contents, and what is staged: for people.
std::string memory_map_text(const MemoryProgram& program, const MemoryPlan& plan);

/// The whole plan: totals, mappings, the place of every tensor, every staged part with its times.
nlohmann::ordered_json memory_map_json(const MemoryProgram& program, const MemoryPlan& plan);

/// Addresses over the time of a run: scratch by lifetimes, the staging slots with their transfers (light) and the work
/// on their contents (dark), resident mappings.
std::string memory_map_svg(const MemoryProgram& program, const MemoryPlan& plan, const std::string& title);

}  // namespace dllm::npu
