#pragma once

#include <optional>
#include <string>

#include "format/toml_table.h"

namespace dllm::npu {

struct Device;

/// Why a device is impossible, and the key responsible.
struct DeviceFault {
  std::string_view section, key;
  std::string what, hint;
};

/// Fills memory_config. Faults: unknown standards, mappings, policies.
std::optional<DeviceFault> resolve_memory(Device& device);

/// Checks conditions between keys; returns the first that is violated.
std::optional<DeviceFault> find_fault(const Device& device);

/// The fault as an error with its line in the file.
Error error_at(const TomlTable& root, DeviceFault fault);

}  // namespace dllm::npu
