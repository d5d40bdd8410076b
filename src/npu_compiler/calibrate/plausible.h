#pragma once

#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm::npu {

/// Whether a time may be in microseconds: between a hundredth and a hundred times what the profile says, from which a
/// calibration begins. A device may be ten times as fast as the profile; another unit is off by a thousand. A column in
/// another unit would be fitted as well as any, since rates have no natural size. `flag`: that gave the file.
/// Errors: kInvalidFile, with the unit that the time seems to have.
Expected<void> check_plausible(std::string_view flag, const std::string& what, double measured_us, double profile_us);

}  // namespace dllm::npu
