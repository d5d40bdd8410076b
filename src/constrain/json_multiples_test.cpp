#include "constrain/json_multiples.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "constrain/dfa.h"

namespace dllm::constrain {
namespace {

using NumberJson = nlohmann::ordered_json;

/// n / 10^decimals with all, or with the fewest, digits after the point.
std::string text_of(std::int64_t n, std::int32_t decimals, bool shortest) {
  std::string digits = std::to_string(std::abs(n));
  if (const auto least = static_cast<std::size_t>(decimals) + 1; digits.size() < least)
    digits.insert(0, least - digits.size(), '0');
  std::string fraction = digits.substr(digits.size() - static_cast<std::size_t>(decimals));
  digits.resize(digits.size() - static_cast<std::size_t>(decimals));
  if (shortest) fraction.erase(fraction.find_last_not_of('0') + 1);
  return (n < 0 ? "-" : "") + digits + (fraction.empty() ? "" : "." + fraction);
}

Decimal decimal(const std::string& text, bool strict = false) {
  const auto found = decimal_of(NumberJson::parse(text), strict);
  EXPECT_TRUE(found) << text;
  return found.value_or(Decimal());
}

/// By enumeration: every number around the bounds, in its shortest and its longest text. Bounds have one digit more
/// than the multiples, so that some of them lie between two.
TEST(JsonMultiples, AreThoseOfTheirValues) {
  std::mt19937 rng(11);
  for (int i = 0; i < 80; ++i) {
    const Multiple multiple{static_cast<std::int64_t>(1 + rng() % 60), static_cast<std::int32_t>(rng() % 4)};
    const std::int64_t tenth = rng() % 3 == 0 ? 1 : 10;
    const auto low = (static_cast<std::int64_t>(rng() % 25000) - 12000) / tenth * tenth,
               high = low + static_cast<std::int64_t>(rng() % 15000) / tenth * tenth;
    const bool strict = rng() % 2 == 0;
    const auto bound = [&](std::int64_t n) { return decimal(text_of(n, multiple.decimals + 1, true), strict); };
    const auto pattern = json_multiples(multiple, bound(low), bound(high));
    std::int64_t found = 0;
    const auto dfa = compile(pattern ? *pattern : *literal("none"));
    ASSERT_TRUE(dfa.has_value());
    for (std::int64_t n = low / 10 - 30; n <= high / 10 + 30; ++n) {
      const bool inside = strict ? n * 10 > low && n * 10 < high : n * 10 >= low && n * 10 <= high;
      for (const bool shortest : {false, true})
        EXPECT_EQ(dfa->matches(text_of(n, multiple.decimals, shortest)), inside && n % multiple.of == 0)
            << multiple.of << " e-" << multiple.decimals << " " << low << " " << high << " " << n;
      found += inside && n % multiple.of == 0;
    }
    EXPECT_EQ(pattern != nullptr, found > 0);
    for (const char* text : {"-0", "00", "1.", ".5", "-0.0", "1e1"}) EXPECT_FALSE(dfa->matches(text)) << text;
  }
}

TEST(JsonMultiples, WithoutBounds) {
  for (const std::int64_t of : {1, 2, 3, 7, 60, 97, 1000}) {
    const auto dfa = compile(*json_multiples({of, 0}, {}, {}));
    ASSERT_TRUE(dfa.has_value());
    std::mt19937_64 rng(3);
    for (int i = 0; i < 200; ++i) {
      const auto n = static_cast<std::int64_t>(rng() % 1'000'000'000'000'000) * (rng() % 2 == 0 ? 1 : -1);
      const std::int64_t multiple = n / of * of;
      EXPECT_TRUE(dfa->matches(std::to_string(multiple))) << of << " " << multiple;
      EXPECT_EQ(dfa->matches(std::to_string(n)), n == multiple) << of << " " << n;
    }
    EXPECT_FALSE(dfa->matches("1000000000000000"));
  }
  EXPECT_EQ(json_multiples({99991, 0}, {}, {}), nullptr) << "a state for each remainder and place";
  const auto few = compile(*json_multiples({99991, 1}, decimal("-2000000.5"), decimal("1000000")));
  for (const auto& [text, is] : {std::pair("9999.1", true),
                                 {"99991", true},
                                 {"-19998.2", true},
                                 {"0", true},
                                 {"99991.0", false},
                                 {"9999", false},
                                 {"-2000000", false},
                                 {"999910", true}})
    EXPECT_EQ(few->matches(text), is) << text;
}

TEST(JsonMultiples, AreReadFromJson) {
  const auto of = [](const char* text) { return multiple_of(NumberJson::parse(text)); };
  EXPECT_EQ(of("0.25")->of, 25);
  EXPECT_EQ(of("0.25")->decimals, 2);
  EXPECT_EQ(of("1e3")->of, 1000);
  EXPECT_EQ(whole_multiple(*of("1.5")).of, 3);
  EXPECT_EQ(whole_multiple(*of("0.5")).of, 1);
  for (const char* text : {"0", "-2", "1e-7", "1e300"}) EXPECT_FALSE(of(text)) << text;
}

}  // namespace
}  // namespace dllm::constrain
