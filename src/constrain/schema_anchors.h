#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "dllm/error.h"

namespace dllm::constrain {

/// The schema with every reference to a name ("$anchor", "$dynamicAnchor") as a JSON pointer. In a document without
/// schemas of their own "$id", "$dynamicRef" and "$recursiveRef" refer to the same places as "$ref" would, and become
/// it. nullopt: it has no such reference. Errors: kUsage (two places with one name, or none).
Expected<std::optional<nlohmann::ordered_json>> without_anchors(const nlohmann::ordered_json& schema);

}  // namespace dllm::constrain
