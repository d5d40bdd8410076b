#pragma once

#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm {

/// A call of the operating system that failed with errno `code`: "ACTION: No space left on device", with the hint that
/// this code deserves. kResource for want of memory, descriptors or processes, kIo otherwise.
Error system_error(std::string_view action, int code, const std::string& where);

}  // namespace dllm
