#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm {

/// `weight_map` of a model.safetensors.index.json: tensor name -> file name. A file name that contains a path is an
/// error, because the index must not refer to files outside its directory. `name`: for messages.
Expected<std::map<std::string, std::string, std::less<>>> parse_safetensors_index(std::span<const std::byte> text,
                                                                                  std::string_view name);

}  // namespace dllm
