#pragma once

#include <string>
#include <vector>

#include "answer/core_executor.h"

namespace dllm::rtl {

/// The hardware of a device profile: what core.sv must be built with, and the shape of the model.
struct CoreParameters {
  CoreShape shape;                   ///< without `make`
  std::vector<std::string> verilog;  ///< "VLEN=64", of core.sv
};
/// SRAM domains have the profile's sizes, but no more than a simulation needs: they are compared after every program.
/// `device` is a shipped profile's name or a file. Errors: those of load_device(); kUnsupported for formats, sizes and
/// latencies that the hardware does not have.
Expected<CoreParameters> core_parameters(const std::string& device, const std::vector<npu::Override>& overrides);

}  // namespace dllm::rtl
