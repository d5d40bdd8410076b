#pragma once

#include <nlohmann/json_fwd.hpp>

#include "dllm/model.h"

namespace dllm {

/// {"common", "parts", "presets"}: the options of a generation, as this build's methods declare them, and which methods
/// and presets the model supports. Those whose value is a text are left out: they name files or are fields of requests.
nlohmann::ordered_json option_catalog(const LanguageModel& model);

}  // namespace dllm
