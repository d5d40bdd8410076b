#include "base/parse_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <locale>
#include <random>
#include <string>

namespace dllm {
namespace {

template <class T>
void expect_same(std::string_view text, std::optional<T> one, std::optional<T> other) {
  ASSERT_EQ(one.has_value(), other.has_value()) << "'" << text << "'";
  if (!one) return;
  if (*one != *one) {
    EXPECT_NE(*other, *other) << text;
    return;
  }
  EXPECT_EQ(*one, *other) << text;
  EXPECT_EQ(std::signbit(*one), std::signbit(*other)) << text;
}

void expect_both_read(std::string_view text) {
  expect_same(text, parse_double(text), detail::parse_double_by_stream(text));
  expect_same(text, parse_float(text), detail::parse_float_by_stream(text));
}

constexpr std::string_view kTexts[] = {
    "0",
    "-0",
    "1",
    "-1",
    "0.5",
    ".5",
    "5.",
    ".",
    "-",
    "-.",
    "1e3",
    "1E3",
    "1e+3",
    "1e-3",
    "1e",
    "1e+",
    "e3",
    "+1",
    " 1",
    "1 ",
    "1,5",
    "1_000",
    "0x10",
    "0x1p3",
    "inf",
    "-inf",
    "INF",
    "Infinity",
    "infinit",
    "nan",
    "-nan",
    "NaN",
    "nan(",
    "nan(12)",
    "nan(-)",
    "nanx",
    "",
    "--1",
    "1e400",
    "-1e400",
    "1e-400",
    "0e-400",
    "1e39",
    "-3.5e38",
    "3.4e38",
    "1e-46",
    "1.4e-45",
    "4.9e-324",
    "2e-324",
    "0.1",
    "16777217",
    "1e23",
    "2.2250738585072011e-308",
    "9007199254740993",
    "1.0000000596046448",
    "0.1f",
    "1.2.3",
    "1e3.5",
    "0.000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001"};

TEST(ParseText, ReadsWholeNumbersOnly) {
  EXPECT_EQ(parse_double("0.1"), 0.1);
  EXPECT_EQ(parse_double("-2.5e-3"), -0.0025);
  EXPECT_EQ(parse_double(".5"), 0.5);
  EXPECT_EQ(parse_float("0.1"), 0.1f);
  EXPECT_EQ(parse_number<double>("1e3"), 1000.0);
  EXPECT_EQ(parse_number<float>("1e3"), 1000.f);
  EXPECT_EQ(parse_number<int>("12"), 12);
  for (const std::string_view bad : {"", " 1", "1 ", "+1", "1x", "0x10", "1e", "1e400", "1e-400", ".", "--1"})
    EXPECT_FALSE(parse_double(bad)) << "'" << bad << "'";
  EXPECT_FALSE(parse_float("1e39"));
  EXPECT_TRUE(parse_double("1e39"));
}

TEST(ParseText, WithoutFromCharsReadsTheSame) {
  for (const std::string_view text : kTexts) expect_both_read(text);
}

TEST(ParseText, WithoutFromCharsRoundsTheSame) {
  // Decimal digits of 1 to 25 places with exponents over the whole range of doubles.
  std::mt19937_64 random(11);
  const auto below = [&random](std::uint64_t most) { return random() % most; };
  for (int i = 0; i < 20000; ++i) {
    std::string text = below(2) == 0 ? "" : "-";
    const auto places = 1 + below(25);
    const auto point = below(places + 1);
    for (std::uint64_t d = 0; d < places; ++d) {
      if (d == point) text += '.';
      text += static_cast<char>('0' + below(10));
    }
    const auto wide = below(3);
    if (wide > 0)
      text += "e" + std::to_string(static_cast<std::int64_t>(below(wide == 1 ? 91 : 701)) - (wide == 1 ? 45 : 350));
    expect_both_read(text);
  }
}

/// Numbers as in German.
struct Commas : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(ParseText, ObeysNoLocale) {
  const std::locale before = std::locale::global(std::locale(std::locale(), new Commas));
  const auto point = detail::parse_double_by_stream("1234.5"), comma = detail::parse_double_by_stream("1234,5");
  const auto ours = parse_double("1234.5");
  std::locale::global(before);
  EXPECT_EQ(point, 1234.5);
  EXPECT_EQ(ours, 1234.5);
  EXPECT_FALSE(comma);
}

}  // namespace
}  // namespace dllm
