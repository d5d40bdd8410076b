#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm {

/// `weight_map` of a model.safetensors.index.json: tensor name -> file name. File names are plain: a path in them is an
/// error, because the index must not reach out of its directory. `name` stands in messages.
Expected<std::map<std::string, std::string, std::less<>>> parse_safetensors_index(std::span<const std::byte> text,
                                                                                  std::string_view name);

}  // namespace dllm
