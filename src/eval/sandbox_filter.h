#pragma once

#include <linux/filter.h>

#include <vector>

#include "dllm/error.h"

namespace dllm::sandbox {

/// A seccomp program under which the system calls that could leave the sandbox fail with EPERM. Errors: kIo.
Expected<std::vector<sock_filter>> forbidden_calls();

}  // namespace dllm::sandbox
