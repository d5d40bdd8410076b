#pragma once

#include <nlohmann/json_fwd.hpp>

namespace dllm::constrain {

/// Whether no value fits both schemas, as far as their types, constants and required properties with constants tell
/// ("oneOf"). False: one may.
bool exclude_each_other(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b,
                        const nlohmann::ordered_json& root);

}  // namespace dllm::constrain
