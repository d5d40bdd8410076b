#pragma once

#include <string>
#include <string_view>

namespace dllm::app {

/// What a user of llama.cpp gives in place of one of its flags that dllm does not have; empty: the flag is not one of
/// those.
std::string llama_cpp_advice(std::string_view flag);

}  // namespace dllm::app
