#pragma once

#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm {

/// The error of a system call that failed with errno `code`: "ACTION: No space left on device", with a hint for this
/// code. kResource for lack of memory, descriptors or processes, kIo otherwise.
Error system_error(std::string_view action, int code, const std::string& where);

}  // namespace dllm
