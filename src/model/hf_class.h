#pragma once

#include <string_view>

#include "dllm/error.h"
#include "model/architecture.h"
#include "model/hf_config.h"

namespace dllm {

/// Whether the checkpoint's repository or folder has this word in its name, in any case: the last part of
/// `_name_or_path`, the folder of config.json itself, or in a hub's cache that of the repository
/// ("models--OWNER--NAME"). Words end at dashes, dots and underscores.
Expected<bool> is_named(const HfConfig& config, std::string_view word);

/// The architecture of a Hugging Face checkpoint: that of its class, or of its `model_type` if no class is named.
/// Errors: kInvalidFile (neither is there), kUnsupported (unknown, code of its own over a known base, or a known model
/// that decodes in a way that this build does not have).
Expected<const Architecture*> find_hf_model(const HfConfig& config);

}  // namespace dllm
