#pragma once

#include <vector>

#include "dllm/error.h"
#include "format/metadata.h"
#include "model/architecture.h"
#include "model/hf_config.h"

namespace dllm {

/// Keys and tensor names of drafters from z-lab's folders (PyPI dflash 0.1.0).
Expected<Metadata> drafter_metadata(const HfConfig& config);
std::vector<TensorRename> drafter_renames();

}  // namespace dllm
