#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

#include "dllm/error.h"

namespace dllm {

/// Which numbers a file may have.
enum class JsonNumbers {
  kJson,
  kPython,  ///< JsonRules::python_numbers
};

/// read_json() with the limits of tensor files' headers. `first_byte` is the offset of `text` in `file`, for messages.
Expected<nlohmann::json> parse_strict_json(std::span<const std::byte> text, std::string_view file,
                                           std::size_t first_byte = 0, JsonNumbers numbers = JsonNumbers::kJson);

}  // namespace dllm
