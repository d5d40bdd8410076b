#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

#include "dllm/error.h"

namespace dllm {

/// Parses JSON without exceptions. Besides syntax errors, it reports a key that occurs twice in one object (the library
/// would silently keep the last), and nesting deeper than in any tensor file's header (which would use too much
/// memory). `first_byte` is the offset of `text` in `file`, for messages.
Expected<nlohmann::json> parse_strict_json(std::span<const std::byte> text, std::string_view file,
                                           std::size_t first_byte = 0);

}  // namespace dllm
