#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

#include "dllm/error.h"

namespace dllm {

/// Parses JSON without exceptions. Errors beside wrong syntax: a key that occurs twice in one object, of which the
/// library would keep the last in silence, and nesting deeper than any header of a tensor file, which would cost memory
/// out of proportion. `first_byte` is where `text` begins in `file`, for messages.
Expected<nlohmann::json> parse_strict_json(std::span<const std::byte> text, std::string_view file,
                                           std::size_t first_byte = 0);

}  // namespace dllm
