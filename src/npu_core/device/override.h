#pragma once

#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm::npu {

/// `key=value` as given to --set: "array.vlen=1024".
struct Override {
  std::string key, value;
};
/// Errors: no '='.
Expected<Override> parse_override(std::string_view text);

}  // namespace dllm::npu
