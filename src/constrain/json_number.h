#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "constrain/pattern.h"

/// The texts of numbers in JSON.
namespace dllm::constrain {

/// The longest numbers without bounds: so many digits before the point, after it, and in an exponent. Every one fits
/// into a double.
inline constexpr std::int32_t kMostDigits = 15, kMostExponentDigits = 2;

/// Integers within the bounds, both included, in O(digits) states. An absent bound stands for kMostDigits digits, or
/// for that of 64 bits if the other bound has more.
PatternPtr json_integer(std::optional<std::int64_t> minimum = {}, std::optional<std::int64_t> maximum = {});
PatternPtr json_number();
/// Natural numbers from `low` to `high` >= `low`.
PatternPtr json_natural(std::uint64_t low, std::uint64_t high);

/// A bound of a number in decimal.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  ///< without leading zeros
  std::string fraction{};   ///< without trailing zeros
  bool strict = false;      ///< the bound itself is outside
};
/// nullopt: it has more than kMostDigits digits before the point, after it, or together.
std::optional<Decimal> decimal_of(const nlohmann::ordered_json& number, bool strict);
/// Numbers within the bounds, without exponents and of at most kMostDigits digits: these differ as doubles if they
/// differ at all, so that a reader's comparison with a strict bound comes out as that of the texts. If nothing is
/// between them, the pattern matches nothing.
PatternPtr json_number_between(const std::optional<Decimal>& low, const std::optional<Decimal>& high);

/// The least integer that is not below a number, or with `strict` above it; nullopt: it is above 2^63 - 1. Numbers
/// below -2^63 give -2^63.
std::optional<std::int64_t> least_integer(const nlohmann::ordered_json& number, bool strict);
/// The same for the greatest integer that is not above it; nullopt: it is below -2^63.
std::optional<std::int64_t> greatest_integer(const nlohmann::ordered_json& number, bool strict);

}  // namespace dllm::constrain
