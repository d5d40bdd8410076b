#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "npu_core/dram/memory_system.h"
#include "npu_core/dram/streams.h"

namespace dllm::app {

/// All results of a run of the memory model: bandwidth, latencies, row hits, how the time was spent (per pseudo-channel
/// and in total), with the closed forms for comparison.
nlohmann::ordered_json dram_json(const npu::dram::MemorySystem& memory, const npu::dram::StreamResult& result);
std::string dram_text(const npu::dram::MemorySystem& memory, const npu::dram::StreamResult& result);

/// One line per command: "clock channel pc COMMAND bank row column".
std::string command_trace_text(const npu::dram::MemorySystem& memory);

/// Shipped standards with their timing, and mappings.
nlohmann::ordered_json standards_json();
std::string standards_text();

}  // namespace dllm::app
