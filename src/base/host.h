#pragma once

#include <string>

namespace dllm {

/// Model name of the processor; "unknown" where the system does not tell.
std::string cpu_name();

}  // namespace dllm
