#pragma once

#include "npu/config/toml_table.h"
#include "npu/device/device.h"

namespace dllm::npu {

/// Fills memory_config. Errors: unknown standards, mappings, policies.
Expected<void> resolve_memory(Device& device, const TomlTable& root);

/// What must hold between keys. Errors name both keys and what would mend them.
Expected<void> check_device(const Device& device, const TomlTable& root);

}  // namespace dllm::npu
