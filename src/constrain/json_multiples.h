#pragma once

#include <cstdint>
#include <optional>

#include "constrain/json_number.h"
#include "constrain/pattern.h"

namespace dllm::constrain {

/// What numbers are multiples of: `of` times 10^-decimals.
struct Multiple {
  std::int64_t of = 1;
  std::int32_t decimals = 0;
};

/// Of JSON's keyword `multipleOf`; nullopt: it is not positive, or has too many digits.
std::optional<Multiple> multiple_of(const nlohmann::ordered_json& number);

/// The integers among the multiples: those of `of` / gcd(of, 10^decimals).
Multiple whole_multiple(const Multiple& multiple);

/// The texts of all multiples from `low` to `high`, without exponents, of at most `decimals` digits after the point. An
/// absent bound stands for kMostDigits digits in all, or for one digit more than the other bound has. Null: there are
/// none, or the remainders of their digits are too many states.
PatternPtr json_multiples(const Multiple& multiple, const std::optional<Decimal>& low,
                          const std::optional<Decimal>& high);

}  // namespace dllm::constrain
