#pragma once

#include <vector>

#include "engine/option_table.h"

namespace dllm {

/// The part of generate_option_table() that belongs to single windows, caches, revision and IterSmooth.
std::vector<OptionSpec> method_options();

}  // namespace dllm
