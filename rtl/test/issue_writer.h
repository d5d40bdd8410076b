#pragma once

#include <string>

#include "npu_core/device/device.h"
#include "npu_core/machine/state.h"
#include "test/vectors.h"

namespace dllm::rtl {

/// A random program of all instructions.
std::string issue_program(Vectors& random, const npu::MachineConfig& config);
/// The tests' device, with this many ports of vector SRAM.
npu::Device issue_device(const std::string& ports);
/// Rows of logits, words of any bits.
void fill_issue(npu::MachineState& state, Vectors& random);

}  // namespace dllm::rtl
