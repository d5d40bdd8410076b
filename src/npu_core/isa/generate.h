#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dllm::npu {

/// docs/guide/isa.md, the manual of the instruction set.
std::string isa_markdown();

/// rtl/dllm_isa_pkg.sv: opcodes, field positions, function codes, control registers. No parameterised packages,
/// interfaces or unpacked structs, so that Verilator 5.006 and Yosys 0.23 can read it.
std::string isa_systemverilog();

nlohmann::ordered_json isa_json();

}  // namespace dllm::npu
