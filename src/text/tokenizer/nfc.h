#pragma once

#include <string>
#include <string_view>

namespace dllm {

/// Unicode normalisation form C. Invalid UTF-8 passes through unchanged and separates the runs around it.
std::string to_nfc(std::string_view text);

}  // namespace dllm
