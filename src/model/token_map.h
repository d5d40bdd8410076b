#pragma once

#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "format/safetensors.h"

namespace dllm {

/// Whether a tensor of a folder is the list `map` (Architecture::token_map), with or without "model." in front.
bool is_token_map(std::string_view map, std::string_view name);

/// The tokens of all rows. Empty: there is no such list. Errors: kUnsupported, if it is no list of I64 or I32.
Expected<std::vector<float>> read_token_map(std::string_view map, const Safetensors& files);

}  // namespace dllm
