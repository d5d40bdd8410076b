#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "constrain/schema_node.h"
#include "dllm/error.h"

namespace dllm::constrain {

/// Whether a schema has keywords that say_conditions() says by others: "not" (but for a list of values), "if",
/// "dependentRequired", "dependentSchemas" and "dependencies".
bool has_conditions(const nlohmann::ordered_json& schema);
/// Whether the name is such a keyword's, or one that means nothing without it ("then", "else").
bool is_condition(std::string_view key);

/// {"not": {"enum": [...]}}, which no other keyword can say.
bool is_excluded_list(const nlohmann::ordered_json& negated);

/// A schema that only values fit which do not fit this one. Budget and errors: as say_conditions().
Expected<nlohmann::ordered_json> negated_schema(const SchemaNode& node, const nlohmann::ordered_json& root,
                                                std::int64_t& budget);

/// Schemas that all hold where those keywords of the schema do, without them. A value that fits them fits the keywords;
/// of "oneOf" within "not", values that fit several of its schemas are left out. `budget`: what may be visited and
/// copied, in values; it is reduced. Errors: kUsage, with the keyword that cannot be negated ("format", "multipleOf",
/// "additionalProperties" ...).
Expected<std::vector<nlohmann::ordered_json>> say_conditions(const SchemaNode& node, const nlohmann::ordered_json& root,
                                                             std::int64_t& budget);

}  // namespace dllm::constrain
