#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/schema_node.h"
#include "dllm/error.h"

namespace dllm::constrain {

/// The schema without "$ref", "allOf" and conditions (has_conditions()) at its top: one that the values fit which fit
/// all of them, and its other keywords. Members of several become {"allOf": [...]}, which is flattened when it is
/// reached, so that schemas that refer to themselves end. Several patterns become a text that only string_patterns()
/// reads. What no value fits is the schema `false`. Annotations and definitions are left out. `budget`: what may still
/// be copied, in values; it is reduced. Errors: kUsage, keywords that one schema cannot say (two formats, two lists of
/// "oneOf" ...), at the place of one of them.
Expected<nlohmann::ordered_json> flatten_schema(const SchemaNode& node, const nlohmann::ordered_json& root,
                                                std::int64_t& budget);

/// Whether flatten_schema() has something to do.
bool needs_flattening(const nlohmann::ordered_json& schema);

/// How many values a JSON value has, with itself; long texts count as several.
std::int64_t count_values(const nlohmann::ordered_json& value);

/// An expression that a string must match, or must not.
struct StringPattern {
  std::string expression;
  bool negated = false;
};

/// What a "pattern" of a flattened schema stands for.
std::vector<StringPattern> string_patterns(std::string_view text);
/// A "pattern" that says that a string does not match `text`, the "pattern" of a schema.
std::string without_pattern(std::string_view text);

/// Whether the schema has other keywords than this one that restrict values.
bool restricts_beside(const nlohmann::ordered_json& schema, std::string_view key);

/// The keywords that restrict values, but this one.
nlohmann::ordered_json keywords_beside(const nlohmann::ordered_json& schema, std::string_view key);

}  // namespace dllm::constrain
