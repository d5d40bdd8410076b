#pragma once

#include <string_view>

#include "serve/api.h"

namespace dllm::serve {

/// The folder of the page's files; the page itself is "/".
inline constexpr std::string_view kPageFolder = "/page/";

/// GET / and everything below kPageFolder: the page's files, which are part of the program (web/README.md).
Expected<void> page(const CallPtr& call);

}  // namespace dllm::serve
