#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "dllm/error.h"
#include "dllm/options.h"

namespace dllm::app {

/// The methods of this build, one line each, by part of the decoding.
std::string methods_text();

/// A method with its options, or a preset with its settings. A name may occur in several parts: all are shown. Errors:
/// kUsage (unknown name).
Expected<std::string> method_text(std::string_view name);

/// JSON Schema (2020-12) of an object that holds any options by key. `x-methods` of a property: the methods that read
/// it; `x-condition`: when; `x-flags`: its spellings on the command line.
nlohmann::ordered_json options_schema();

}  // namespace dllm::app
