#pragma once

#include <vector>

#include "app/cli/verb.h"

namespace dllm::app {

/// The verbs of `dllm npu`. Each is one file npu_*.cpp and one line in npu.cpp.
const std::vector<VerbEntry>& npu_verbs();

}  // namespace dllm::app
