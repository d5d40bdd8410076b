#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu_core/device/device.h"
#include "npu_core/device/override.h"

namespace dllm::npu {

/// Reads a profile. `base = "NAME"` starts from a shipped profile; without it, keys without a default are required.
/// Errors: unknown keys, values out of range and contradictions between keys, with line and hint.
Expected<Device> parse_device(std::string_view text, const std::string& file,
                              const std::vector<Override>& overrides = {});

/// A shipped profile by name, or a file by path.
Expected<Device> load_device(const std::string& name_or_path, const std::vector<Override>& overrides = {});

std::vector<std::string> device_names();

/// Rejects impossible devices: contradictions between keys, sizes out of range, clocks beyond the voltage curve. Every
/// command checks this, through parse_device() or, for the points of a sweep, directly. Errors: kInvalidFile; `where`
/// is the key.
Expected<void> validate(const Device& device);

/// Every key with its value, grouped by section, and the derived values.
nlohmann::ordered_json device_json(const Device& device);

/// Bits per element with the share of its scale: "mxint4:32:plena" 4.25, "q4_0" 4.5, "fp16" 16. Errors: unknown
/// formats.
Expected<double> format_bits(const std::string& format);

}  // namespace dllm::npu
