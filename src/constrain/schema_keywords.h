#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/schema_node.h"
#include "dllm/error.h"

namespace dllm::constrain {

/// The names of all types, as in `type`.
std::span<const std::string_view> schema_types();

/// Whether it is a keyword that restricts values, of any draft, supported or not.
bool restricts(std::string_view key);

/// The types to which the keywords of a schema apply; empty: it has none of these, so that any value fits.
std::vector<std::string> implied_types(const nlohmann::ordered_json& schema);

/// An error for the first keyword that would restrict values of these types and is not among `read`. Keywords for other
/// types, annotations and unknown keywords restrict nothing (JSON Schema 2020-12, core, 4.3.1), and are ignored.
Expected<void> check_keywords(const SchemaNode& node, std::span<const std::string_view> read,
                              std::span<const std::string> types);

}  // namespace dllm::constrain
