#include "constrain/json_number.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace dllm::constrain {
namespace {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min(),
                       kGreatest = std::numeric_limits<std::int64_t>::max();
constexpr double kTwoTo63 = 9223372036854775808.0;

/// One object for each range: a bound of many digits has dozens of them, and what is compiled for one is shared.
const PatternPtr& digit_range(char first, char last) {
  static const auto ranges = [] {
    std::array<std::array<PatternPtr, 10>, 10> all;
    for (char32_t a = 0; a < 10; ++a)
      for (char32_t b = a; b < 10; ++b) all[a][b] = one_of({U'0' + a, U'0' + b});
    return all;
  }();
  return ranges[static_cast<std::size_t>(first - '0')][static_cast<std::size_t>(last - '0')];
}

PatternPtr any_digits(std::int32_t least, std::int32_t most) { return repeat(digit_range('0', '9'), least, most); }

/// Decimal numbers of one length that are at least, at most, or between given ones. Each digit adds one branch, to any
/// digits; these are shared, so that a bound of n digits costs O(n) states. (One recursion over both bounds at once
/// would double at every digit.)
class SameLength {
 public:
  SameLength() : any_(digits()) {}

  PatternPtr between(std::string_view low, std::string_view high) const {
    if (low.empty()) return sequence({});
    const char a = low.front(), b = high.front();
    low.remove_prefix(1);
    high.remove_prefix(1);
    if (a == b) return sequence({digit_range(a, a), between(low, high)});
    std::vector<PatternPtr> ways = {sequence({digit_range(a, a), at_least(low)}),
                                    sequence({digit_range(b, b), at_most(high)})};
    if (b - a > 1)
      ways.push_back(sequence({digit_range(static_cast<char>(a + 1), static_cast<char>(b - 1)), any_[low.size()]}));
    return either(std::move(ways));
  }

 private:
  PatternPtr at_least(std::string_view bound) const {
    return bounded(bound, [](char digit) { return std::pair(static_cast<char>(digit + 1), '9'); });
  }
  PatternPtr at_most(std::string_view bound) const {
    return bounded(bound, [](char digit) { return std::pair('0', static_cast<char>(digit - 1)); });
  }

  /// From the last digit to the first: the bound's digit and what follows it, or one of `inside` and any digits.
  template <class Inside>
  PatternPtr bounded(std::string_view bound, Inside inside) const {
    PatternPtr rest = any_[0];
    for (std::size_t i = bound.size(); i-- > 0;) {
      std::vector<PatternPtr> ways = {sequence({digit_range(bound[i], bound[i]), rest})};
      if (const auto [first, last] = inside(bound[i]); first <= last)
        ways.push_back(sequence({digit_range(first, last), any_[bound.size() - 1 - i]}));
      rest = either(std::move(ways));
    }
    return rest;
  }

  static const std::vector<PatternPtr>& digits() {
    static const auto all = [] {
      std::vector<PatternPtr> any = {sequence({})};
      for (int i = 0; i < std::numeric_limits<std::uint64_t>::digits10 + 1; ++i)
        any.push_back(sequence({digit_range('0', '9'), any.back()}));
      return any;
    }();
    return all;
  }

  const std::vector<PatternPtr>& any_;  ///< [n]: any n digits
};

/// -n, which may be 2^63, from n < 0.
std::uint64_t magnitude(std::int64_t n) { return std::uint64_t{0} - static_cast<std::uint64_t>(n); }

constexpr std::int64_t most_without_bounds() {
  std::int64_t most = 1;
  for (std::int32_t i = 0; i < kMostDigits; ++i) most *= 10;
  return most - 1;
}

}  // namespace

PatternPtr json_natural(std::uint64_t low, std::uint64_t high) {
  const std::string first = std::to_string(low), last = std::to_string(high);
  const SameLength same;
  if (first.size() == last.size()) return same.between(first, last);
  std::vector<PatternPtr> ways = {same.between(first, std::string(first.size(), '9')),
                                  same.between("1" + std::string(last.size() - 1, '0'), last)};
  // The lengths between.
  if (last.size() - first.size() > 1)
    ways.push_back(sequence({digit_range('1', '9'), any_digits(static_cast<std::int32_t>(first.size()),
                                                               static_cast<std::int32_t>(last.size()) - 2)}));
  return either(std::move(ways));
}

PatternPtr json_integer(std::optional<std::int64_t> minimum, std::optional<std::int64_t> maximum) {
  if (!minimum && !maximum)
    return sequence({maybe(literal("-")),
                     either({literal("0"), sequence({digit_range('1', '9'), any_digits(0, kMostDigits - 1)})})});
  constexpr std::int64_t kMost = most_without_bounds();
  const std::int64_t given = minimum.value_or(maximum.value_or(0));
  const bool beyond = given < -kMost || given > kMost;
  const std::int64_t low = minimum.value_or(beyond ? kLeast : -kMost),
                     high = maximum.value_or(beyond ? kGreatest : kMost);
  if (low > high) return either({});
  std::vector<PatternPtr> ways;
  if (high >= 0)
    ways.push_back(
        json_natural(static_cast<std::uint64_t>(std::max<std::int64_t>(low, 0)), static_cast<std::uint64_t>(high)));
  if (low < 0)
    ways.push_back(sequence({literal("-"), json_natural(magnitude(std::min<std::int64_t>(high, -1)), magnitude(low))}));
  return either(std::move(ways));
}

PatternPtr json_number() {
  CharSet signs('+', '+'), e('e', 'e');
  signs.add('-', '-');
  e.add('E', 'E');
  return sequence({json_integer(), maybe(sequence({literal("."), any_digits(1, kMostDigits)})),
                   maybe(sequence({one_of(e), maybe(one_of(signs)), any_digits(1, kMostExponentDigits)}))});
}

std::optional<std::int64_t> least_integer(const nlohmann::ordered_json& number, bool strict) {
  std::int64_t value = 0;
  bool above = strict;  // whether the result is above `value`
  if (number.is_number_float()) {
    const double exact = number.get<double>(), floor = std::floor(exact);
    if (floor >= kTwoTo63) return std::nullopt;
    if (floor < -kTwoTo63) return kLeast;
    value = static_cast<std::int64_t>(floor);
    above = strict || floor < exact;
  } else if (number.is_number_unsigned() && number.get<std::uint64_t>() > static_cast<std::uint64_t>(kGreatest)) {
    return std::nullopt;
  } else {
    value = number.get<std::int64_t>();
  }
  if (!above) return value;
  return value == kGreatest ? std::nullopt : std::optional(value + 1);
}

std::optional<std::int64_t> greatest_integer(const nlohmann::ordered_json& number, bool strict) {
  std::int64_t value = 0;
  bool below = strict;
  if (number.is_number_float()) {
    const double exact = number.get<double>(), ceil = std::ceil(exact);
    if (ceil < -kTwoTo63) return std::nullopt;
    if (ceil >= kTwoTo63) return kGreatest;
    value = static_cast<std::int64_t>(ceil);
    below = strict || ceil > exact;
  } else if (number.is_number_unsigned() && number.get<std::uint64_t>() > static_cast<std::uint64_t>(kGreatest)) {
    return kGreatest;
  } else {
    value = number.get<std::int64_t>();
  }
  if (!below) return value;
  return value == kLeast ? std::nullopt : std::optional(value - 1);
}

}  // namespace dllm::constrain
