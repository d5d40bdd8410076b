#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dllm {

/// `text` with every %HH replaced by its byte (RFC 3986, section 2.1); nothing if a percent sign begins no such triple.
std::optional<std::string> percent_decoded(std::string_view text);

}  // namespace dllm
