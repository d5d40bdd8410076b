#pragma once

#include "npu_core/machine/config.h"

namespace dllm::npu {

struct Device;

/// The functional machine of a device profile. numerics.activation is the format to which the matrix unit converts its
/// vector operands and that of activations in HBM; numerics.kv is that of keys and values on both paths. With FP16
/// activations the vector unit computes in FP16. Errors: kUnsupported for formats that the machine does not support.
Expected<MachineConfig> machine_config(const Device& device);

/// `name=FORMAT` for one of weight, matrix_kv, activation, vector_kv, matrix_input. Errors: kUsage.
Expected<void> override_format(MachineConfig& config, std::string_view assignment);

}  // namespace dllm::npu
