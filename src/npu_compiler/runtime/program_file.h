#pragma once

#include <string>
#include <string_view>

#include "dllm/error.h"
#include "npu_compiler/runtime/memory_plan.h"

namespace dllm::npu {

/// Reads a program for the planner from TOML, for graphs that this project does not build:
///
///     [[tensor]]
///     name = "w1"
///     bytes = 29360128
///     granule = 73728       # optional: it may be staged in parts of so many bytes
///     lasting = true        # optional, default false
///     [[operator]]
///     name = "up"
///     us = 310.5
///     reads = ["x", "w1"]
///     writes = ["y"]
///
/// Errors: kInvalidFile with the line: unknown keys, missing or duplicate names, sizes out of range.
Expected<MemoryProgram> parse_memory_program(std::string_view text, const std::string& file);

}  // namespace dllm::npu
