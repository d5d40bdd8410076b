#include "constrain/json_number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <tuple>

#include "constrain/dfa.h"

namespace dllm::constrain {
namespace {

using Json = nlohmann::ordered_json;

TEST(JsonNumber, IntegersWithinBoundsByEnumeration) {
  std::mt19937 rng(5);
  for (int i = 0; i < 60; ++i) {
    const auto low = static_cast<std::int64_t>(rng() % 2500) - 1200,
               high = low + static_cast<std::int64_t>(rng() % 1500);
    const auto dfa = compile(*json_integer(low, high));
    ASSERT_TRUE(dfa.has_value());
    for (std::int64_t n = low - 30; n <= high + 30; ++n)
      EXPECT_EQ(dfa->matches(std::to_string(n)), n >= low && n <= high) << low << " " << high << " " << n;
    EXPECT_FALSE(dfa->matches("-0"));
  }
}

/// The digits of both bounds, a sign, and the lengths between: not the square of the digits, and no tree of choices.
TEST(JsonNumber, IntegersTakeAsManyStatesAsTheyHaveDigits) {
  constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();
  const std::tuple<std::optional<std::int64_t>, std::optional<std::int64_t>> cases[] = {
      {0, std::nullopt}, {std::nullopt, 100}, {0, 9999999999999},   {-9007199254740991, 9007199254740991},
      {1, kLast},        {-kLast - 1, kLast}, {kLast, std::nullopt}};
  for (const auto& [low, high] : cases) {
    const auto dfa = compile(*json_integer(low, high));
    ASSERT_TRUE(dfa.has_value());
    EXPECT_LT(dfa->states, 90);
    for (const auto& bound : {low, high})
      if (bound) {
        EXPECT_TRUE(dfa->matches(std::to_string(*bound))) << *bound;
      }
    if (low && *low > 0) {
      EXPECT_FALSE(dfa->matches(std::to_string(*low - 1)));
    }
    if (high && *high < kLast) {
      EXPECT_FALSE(dfa->matches(std::to_string(*high + 1)));
    }
    EXPECT_FALSE(dfa->matches("9223372036854775808"));
    EXPECT_FALSE(dfa->matches("-9223372036854775809"));
  }
  const auto from_far = compile(*json_integer(9007199254740993, std::nullopt));
  EXPECT_TRUE(from_far->matches("9223372036854775807"));
}

TEST(JsonNumber, NumbersWithinBoundsAreThoseOfTheirValues) {
  std::mt19937 rng(17);
  const auto random_bound = [&] { return (static_cast<double>(rng() % 4000) - 2000) / (rng() % 2 == 0 ? 100 : 1); };
  for (int i = 0; i < 150; ++i) {
    const double low = random_bound(), high = std::round(low * 100 + static_cast<double>(rng() % 300)) / 100;
    const bool strict_low = rng() % 2 == 0, strict_high = rng() % 2 == 0;
    const auto dfa =
        compile(*json_number_between(decimal_of(Json(low), strict_low), decimal_of(Json(high), strict_high)));
    for (int j = -40; j <= 340; ++j) {
      const double value = std::round(low * 100 + j) / 100;
      const std::string text = Json(value).dump();
      const bool inside = (strict_low ? value > low : value >= low) && (strict_high ? value < high : value <= high);
      if (text != "-0.0") {
        EXPECT_EQ(dfa && dfa->matches(text), inside) << low << " " << high << " " << text;
      }
    }
  }
}

}  // namespace
}  // namespace dllm::constrain
