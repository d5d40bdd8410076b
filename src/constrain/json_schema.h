#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "constrain/pattern.h"
#include "dllm/error.h"

namespace dllm::constrain {

/// The levels of arrays and objects where a schema leaves a value open.
inline constexpr int kOpenLevels = 4;
/// The same of a property, an item or another part that is left open: each level doubles the states.
inline constexpr int kOpenLevelsWithin = 2;

/// The texts that a JSON Schema (draft 2020-12) accepts, or a part of them: every text of the pattern is valid, in the
/// form of json_text.h, with the properties in the order of the schema and no others. docs/guide/structure.md lists the
/// keywords. `path`: the schema's own. Errors: kUsage, `where` is the JSON path of the keyword
/// ("$.properties.age.multipleOf").
Expected<PatternPtr> schema_pattern(const nlohmann::ordered_json& schema, const std::string& path = "$");

/// The same from its text. Errors: kUsage (not JSON, a key twice, nested too deep) as well.
Expected<PatternPtr> parse_schema(std::string_view text);

}  // namespace dllm::constrain
