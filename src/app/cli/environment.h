#pragma once

#include <span>
#include <string>
#include <vector>

#include "dllm/error.h"

namespace dllm::app {

/// Names in the process's environment that begin as the twins of flags do, with DLLM_ARG_.
std::vector<std::string> flag_variables();

/// Whether each of `names` is the twin of some verb's flag: one environment may serve several verbs, but a misspelt
/// name must not be passed over. Errors: kUsage, with the nearest twin.
Expected<void> check_flag_variables(std::span<const std::string> names);

}  // namespace dllm::app
