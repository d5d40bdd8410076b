#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "constrain/pattern.h"

/// The texts of JSON values. White space: at most one space after each ':' and ','; none elsewhere.
namespace dllm::constrain {

PatternPtr json_comma();
PatternPtr json_colon();

/// A string of `least` to `most` characters; an escape is one.
PatternPtr json_string(std::int32_t least = 0, std::int32_t most = Pattern::kUnbounded);
/// A string whose content, unescaped, matches.
PatternPtr json_string_of(const PatternPtr& content);
/// The same, of `least` to `most` characters: there are states for each of them.
PatternPtr json_string_of(const PatternPtr& content, std::int32_t least, std::int32_t most);
PatternPtr json_boolean();
/// This value, written like dump() except for spaces.
PatternPtr json_value(const nlohmann::ordered_json& value);
/// `least` to `most` items, separated by commas.
PatternPtr json_list(const PatternPtr& item, std::int32_t least, std::int32_t most);
/// [item, ...]
PatternPtr json_array(const PatternPtr& item, std::int32_t least = 0, std::int32_t most = Pattern::kUnbounded);
/// {key: value, ...}; a key may occur twice, which no regular language can forbid.
PatternPtr json_map(const PatternPtr& key, const PatternPtr& value, std::int32_t least = 0,
                    std::int32_t most = Pattern::kUnbounded);
/// Any object, any value, with so many levels of arrays and objects at most.
PatternPtr json_any_object(int levels);
PatternPtr json_any(int levels);

}  // namespace dllm::constrain
