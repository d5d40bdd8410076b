#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "npu_compiler/runtime/program_file.h"
#include "npu_compiler/sweep/spec.h"
#include "npu_core/device/profile.h"
#include "npu_core/dram/standard.h"
#include "npu_core/dram/streams.h"

namespace dllm::npu {

/// The body of fuzz/fuzz_npu_toml.cpp, which a test replays over its corpus: any text is a device, a DRAM standard, a
/// design space, a program for the planner or a trace of requests, or gives a meaningful error.
inline void fuzz_npu_toml(std::string_view text) {
  const auto require = [](const auto& result) {
    if (!result && result.error().what.empty()) __builtin_trap();
  };
  const auto device = parse_device(text, "input");
  require(device);
  if (device) (void)device_json(*device);
  require(dram::parse_standard(text, "input"));
  require(parse_sweep(text, "input"));
  const auto program = parse_memory_program(text, "input");
  require(program);
  if (program) require(plan_memory(*program, {.window_bytes = 1 << 20, .staging_bytes = 1 << 16, .map_us = 1}));
  require(dram::parse_trace(std::string(text), "input"));
}

}  // namespace dllm::npu
