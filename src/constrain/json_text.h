#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "constrain/pattern.h"

/// The texts of JSON values. White space: at most one space after each ':' and ','; none elsewhere.
namespace dllm::constrain {

/// The longest numbers: so many digits before the point, after it, and in an exponent. Every one fits into a double.
inline constexpr std::int32_t kMostDigits = 15, kMostExponentDigits = 2;

PatternPtr json_comma();
PatternPtr json_colon();

/// A string of `least` to `most` characters; an escape is one.
PatternPtr json_string(std::int32_t least = 0, std::int32_t most = Pattern::kUnbounded);
/// A string whose content, unescaped, matches.
PatternPtr json_string_of(const PatternPtr& content);
/// Integers within the bounds, both included; a bound that is absent: of up to kMostDigits digits, or as the other one.
PatternPtr json_integer(std::optional<std::int64_t> minimum = {}, std::optional<std::int64_t> maximum = {});
PatternPtr json_number();
PatternPtr json_boolean();
/// This value, written like dump() except for spaces.
PatternPtr json_value(const nlohmann::ordered_json& value);
/// [item, ...]
PatternPtr json_array(const PatternPtr& item, std::int32_t least = 0, std::int32_t most = Pattern::kUnbounded);
/// Any object, any value, with so many levels of arrays and objects at most.
PatternPtr json_any_object(int levels);
PatternPtr json_any(int levels);

}  // namespace dllm::constrain
