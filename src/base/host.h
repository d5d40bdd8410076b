#pragma once

#include <string>

namespace dllm {

/// Model name of the processor; "unknown" if the system does not report it.
std::string cpu_name();

}  // namespace dllm
