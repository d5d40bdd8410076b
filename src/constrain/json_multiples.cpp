#include "constrain/json_multiples.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dllm::constrain {
namespace {

constexpr std::int32_t kMostDecimals = 6;
/// Nodes of the graph of places and remainders: a modulus of some hundreds without bounds.
constexpr std::size_t kMostNodes = 6000;
constexpr std::int32_t kMostPlaces = 18;  ///< of what fits into 64 bits

constexpr std::int64_t power_of_ten(std::int32_t places) {
  std::int64_t power = 1;
  for (std::int32_t i = 0; i < places; ++i) power *= 10;
  return power;
}

/// Texts of natural numbers of a fixed number of places, `decimals` of them after the point, whose value (in units of
/// the last place) has a remainder of zero. They are read from the left; what matters of the digits so far is the
/// remainder that those to come must have. Trailing zeros after the point may be left out.
class Remainders {
 public:
  explicit Remainders(const Multiple& multiple) : of_(multiple.of), decimals_(multiple.decimals) {
    std::int64_t power = 1 % of_;
    for (std::int64_t& one : powers_) one = std::exchange(power, power * 10 % of_);
  }

  bool too_many() const { return free_.size() > kMostNodes; }

  /// From `low` to `high`, both of as many digits. Null: none.
  PatternPtr between(std::string_view low, std::string_view high, std::int64_t remainder = 0) {
    const std::int32_t left = static_cast<std::int32_t>(low.size());
    std::vector<PatternPtr> ways;
    if (may_end(left, remainder) && zeros(low)) ways.push_back(sequence({}));
    if (left == 0) return made(std::move(ways));
    if (low[0] == high[0]) {
      add(ways, left, only(low[0]), between(low.substr(1), high.substr(1), after(left, low[0], remainder)));
      return made(std::move(ways));
    }
    add(ways, left, only(low[0]), at_least(low.substr(1), after(left, low[0], remainder)));
    add_free(ways, left, low[0] + 1, high[0] - 1, remainder);
    add(ways, left, only(high[0]), at_most(high.substr(1), after(left, high[0], remainder)));
    return made(std::move(ways));
  }

 private:
  static CharSet only(char digit) { return {static_cast<char32_t>(digit), static_cast<char32_t>(digit)}; }
  static bool zeros(std::string_view digits) { return digits.find_first_not_of('0') == digits.npos; }
  static PatternPtr made(std::vector<PatternPtr> ways) {
    return ways.empty() ? nullptr : ways.size() == 1 ? ways.front() : either(std::move(ways));
  }

  bool may_end(std::int32_t left, std::int64_t remainder) const { return left <= decimals_ && remainder == 0; }

  /// The remainder that is left after a digit with `left` - 1 digits behind it.
  std::int64_t after(std::int32_t left, int digit, std::int64_t remainder) const {
    const std::int64_t value = (digit - '0') * powers_[static_cast<std::size_t>(left - 1)] % of_;
    return (remainder - value + of_) % of_;
  }

  /// One digit of a set, the point before it where it is due, and the rest; nothing if there is no rest.
  void add(std::vector<PatternPtr>& ways, std::int32_t left, const CharSet& digits, const PatternPtr& rest) const {
    if (rest == nullptr) return;
    std::vector<PatternPtr> parts;
    if (left == decimals_) parts.push_back(literal("."));
    parts.push_back(one_of(digits));
    parts.push_back(rest);
    ways.push_back(sequence(std::move(parts)));
  }

  /// Any of some digits, with any digits behind it. Digits with the same rest are one set.
  void add_free(std::vector<PatternPtr>& ways, std::int32_t left, int first, int last, std::int64_t remainder) {
    std::vector<std::pair<PatternPtr, CharSet>> by_rest;
    for (int digit = first; digit <= last; ++digit) {
      const PatternPtr rest = free(left - 1, after(left, digit, remainder));
      auto found = std::ranges::find(by_rest, rest, &std::pair<PatternPtr, CharSet>::first);
      if (found == by_rest.end()) found = by_rest.insert(found, {rest, CharSet()});
      found->second.add(static_cast<char32_t>(digit), static_cast<char32_t>(digit));
    }
    for (const auto& [rest, digits] : by_rest) add(ways, left, digits, rest);
  }

  PatternPtr free(std::int32_t left, std::int64_t remainder) {
    if (const auto found = free_.find({left, remainder}); found != free_.end()) return found->second;
    std::vector<PatternPtr> ways;
    if (may_end(left, remainder)) ways.push_back(sequence({}));
    if (left > 0 && !too_many()) add_free(ways, left, '0', '9', remainder);
    return free_[{left, remainder}] = made(std::move(ways));
  }

  PatternPtr at_least(std::string_view bound, std::int64_t remainder) {
    const std::int32_t left = static_cast<std::int32_t>(bound.size());
    std::vector<PatternPtr> ways;
    if (may_end(left, remainder) && zeros(bound)) ways.push_back(sequence({}));
    if (left > 0) {
      add(ways, left, only(bound[0]), at_least(bound.substr(1), after(left, bound[0], remainder)));
      add_free(ways, left, bound[0] + 1, '9', remainder);
    }
    return made(std::move(ways));
  }

  PatternPtr at_most(std::string_view bound, std::int64_t remainder) {
    const std::int32_t left = static_cast<std::int32_t>(bound.size());
    std::vector<PatternPtr> ways;
    if (may_end(left, remainder)) ways.push_back(sequence({}));
    if (left > 0) {
      add_free(ways, left, '0', bound[0] - 1, remainder);
      add(ways, left, only(bound[0]), at_most(bound.substr(1), after(left, bound[0], remainder)));
    }
    return made(std::move(ways));
  }

  std::int64_t of_;
  std::int32_t decimals_;
  std::array<std::int64_t, kMostPlaces + 1> powers_{};  ///< of ten, modulo `of`
  std::map<std::pair<std::int32_t, std::int64_t>, PatternPtr> free_;
};

/// A bound in units of the last place, rounded to the inside; nullopt: it does not fit.
std::optional<std::int64_t> scaled(const Decimal& bound, std::int32_t decimals, bool lower) {
  const auto places = static_cast<std::size_t>(decimals);
  if (bound.whole.size() + places > static_cast<std::size_t>(kMostPlaces)) return std::nullopt;
  std::string digits = bound.whole + bound.fraction.substr(0, places);
  digits.append(places - std::min(places, bound.fraction.size()), '0');
  const std::int64_t magnitude = std::stoll(digits), value = bound.negative ? -magnitude : magnitude;
  const bool cut = bound.fraction.size() > places;
  // A cut value is nearer to zero than the bound.
  const bool outside = cut ? bound.negative != lower : bound.strict;
  if (!outside) return value;
  return lower ? value + 1 : value - 1;
}

PatternPtr naturals(Remainders& remainders, std::int64_t low, std::int64_t high, std::int32_t decimals) {
  std::vector<PatternPtr> ways;
  for (std::int32_t places = decimals + 1; places <= kMostPlaces; ++places) {
    // Only the number before the point has no leading zeros.
    const std::int64_t first = std::max(low, places == decimals + 1 ? 0 : power_of_ten(places - 1)),
                       last = std::min(high, power_of_ten(places) - 1);
    if (first > last) continue;
    const auto padded = [&](std::int64_t n) {
      const std::string digits = std::to_string(n);
      return std::string(static_cast<std::size_t>(places) - digits.size(), '0') + digits;
    };
    if (PatternPtr one = remainders.between(padded(first), padded(last))) ways.push_back(std::move(one));
  }
  return ways.empty() ? nullptr : either(std::move(ways));
}

/// The shortest text of each of a few multiples. Null: they are too many.
PatternPtr listed(const Multiple& multiple, std::int64_t from, std::int64_t to) {
  constexpr std::int64_t kMost = 500;
  const std::int64_t first = from / multiple.of, last = to / multiple.of;
  if (last - first > kMost) return nullptr;
  std::vector<PatternPtr> ways;
  for (std::int64_t i = first; i <= last; ++i) {
    const std::int64_t n = i * multiple.of;
    if (n < from || n > to) continue;
    std::string digits = std::to_string(std::abs(n));
    const auto places = static_cast<std::size_t>(multiple.decimals);
    if (digits.size() <= places) digits.insert(0, places + 1 - digits.size(), '0');
    digits.insert(digits.size() - places, ".");
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.ends_with('.')) digits.pop_back();
    ways.push_back(literal((n < 0 ? "-" : "") + digits));
  }
  return ways.empty() ? nullptr : either(std::move(ways));
}

}  // namespace

std::optional<Multiple> multiple_of(const nlohmann::ordered_json& number) {
  const auto decimal = decimal_of(number, /*strict=*/false);
  if (!decimal || decimal->negative || decimal->fraction.size() > static_cast<std::size_t>(kMostDecimals))
    return std::nullopt;
  const std::int64_t of = std::stoll(decimal->whole + decimal->fraction);
  if (of < 1 || of > power_of_ten(kMostPlaces) / 10) return std::nullopt;
  return Multiple{of, static_cast<std::int32_t>(decimal->fraction.size())};
}

Multiple whole_multiple(const Multiple& multiple) {
  return {multiple.of / std::gcd(multiple.of, power_of_ten(multiple.decimals)), 0};
}

PatternPtr json_multiples(const Multiple& multiple, const std::optional<Decimal>& low,
                          const std::optional<Decimal>& high) {
  const auto first = low ? scaled(*low, multiple.decimals, /*lower=*/true) : std::optional<std::int64_t>();
  const auto last = high ? scaled(*high, multiple.decimals, /*lower=*/false) : std::optional<std::int64_t>();
  if ((low && !first) || (high && !last)) return nullptr;
  const std::int64_t given = std::max(std::abs(first.value_or(0)), std::abs(last.value_or(0)));
  const auto digits = static_cast<std::int32_t>(std::to_string(given).size());
  const std::int64_t most = power_of_ten(std::min(std::max(kMostDigits, digits + 1), kMostPlaces)) - 1;
  const std::int64_t from = first.value_or(-most), to = last.value_or(most);
  Remainders remainders(multiple);
  std::vector<PatternPtr> ways;
  if (to >= 0)
    if (PatternPtr some = naturals(remainders, std::max<std::int64_t>(from, 0), to, multiple.decimals))
      ways.push_back(std::move(some));
  if (from < 0)
    if (PatternPtr some = naturals(remainders, -std::min<std::int64_t>(to, -1), -from, multiple.decimals))
      ways.push_back(sequence({literal("-"), std::move(some)}));
  if (remainders.too_many()) return listed(multiple, from, to);
  return ways.empty() ? nullptr : either(std::move(ways));
}

}  // namespace dllm::constrain
