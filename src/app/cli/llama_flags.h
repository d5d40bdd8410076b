#pragma once

#include <string>
#include <string_view>

namespace dllm::app {

/// The replacement for a flag of llama.cpp that dllm does not have; empty: not one of those
/// flags.
std::string llama_cpp_advice(std::string_view flag);

}  // namespace dllm::app
