#pragma once

namespace dllm {

/// The variable of the environment that names the user's own folder.
#if defined(_WIN32)
inline constexpr const char* kHomeVariable = "USERPROFILE";
#else
inline constexpr const char* kHomeVariable = "HOME";
#endif

}  // namespace dllm
