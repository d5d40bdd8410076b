#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "constrain/schema_node.h"
#include "dllm/error.h"

namespace dllm::constrain {

/// The schema without "$ref" and "allOf" at its top: one that the values fit which fit all of them, and its other
/// keywords. Members of several become {"allOf": [...]}, which is flattened when it is reached, so that schemas that
/// refer to themselves end. What no value fits is the schema `false`. Annotations and definitions are left out.
/// `budget`: what may still be copied, in values; it is reduced. Errors: kUsage, keywords that one schema cannot say
/// (two patterns, two lists of "oneOf" ...), at the place of one of them.
Expected<nlohmann::ordered_json> flatten_schema(const SchemaNode& node, const nlohmann::ordered_json& root,
                                                std::int64_t& budget);

/// Whether the schema has other keywords than this one that restrict values.
bool restricts_beside(const nlohmann::ordered_json& schema, std::string_view key);

/// The keywords that restrict values, but this one.
nlohmann::ordered_json keywords_beside(const nlohmann::ordered_json& schema, std::string_view key);

}  // namespace dllm::constrain
