#pragma once

#include <span>
#include <string>
#include <vector>

#include "dllm/error.h"

namespace dllm::app {

/// Names in the process's environment with the prefix of the flags' variables, DLLM_ARG_.
std::vector<std::string> flag_variables();

/// Whether each of `names` is the variable of some verb's flag: one environment may serve several verbs, but a misspelt
/// name must be reported. Errors: kUsage, with the nearest variable.
Expected<void> check_flag_variables(std::span<const std::string> names);

}  // namespace dllm::app
