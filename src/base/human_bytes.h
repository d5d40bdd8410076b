#pragma once

#include <string>

namespace dllm {

/// "999 B", "12.30 MB", decimal units up to TB.
std::string human_bytes(double bytes);

}  // namespace dllm
