#pragma once

#include <string>

#include "dllm/error.h"
#include "model/source.h"

namespace dllm {

/// vision_source() of a Hugging Face directory.
Expected<ModelSource> vision_from_hf(const std::string& directory);

}  // namespace dllm
