#pragma once

#include <string>
#include <string_view>

namespace dllm {

/// A name from a file or a request, for messages: quoted, control characters escaped, at most 96 bytes of it.
std::string quote_name(std::string_view name);

}  // namespace dllm
