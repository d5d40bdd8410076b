#pragma once

#include <optional>
#include <string>

#include "npu/config/toml_table.h"
#include "npu/device/device.h"

namespace dllm::npu {

/// Something that a device cannot be, at the key that says so.
struct DeviceFault {
  std::string_view section, key;
  std::string what, hint;
};

/// Fills memory_config. Faults: unknown standards, mappings, policies.
std::optional<DeviceFault> resolve_memory(Device& device);

/// What must hold between keys; the first that does not.
std::optional<DeviceFault> find_fault(const Device& device);

/// The fault as an error at its line of the file.
Error error_at(const TomlTable& root, DeviceFault fault);

}  // namespace dllm::npu
