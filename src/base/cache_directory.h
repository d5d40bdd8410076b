#pragma once

#include <string>

namespace dllm {

/// Directory for files that can be recreated: $XDG_CACHE_HOME/dllm, or $HOME/.cache/dllm; empty if neither variable
/// names a directory. It need not exist.
std::string cache_directory();

/// The same for given values of the two variables (null: unset).
std::string cache_directory(const char* xdg_cache_home, const char* home);

}  // namespace dllm
