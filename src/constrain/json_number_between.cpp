#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constrain/json_number.h"

namespace dllm::constrain {
namespace {

/// Without an upper bound: so many digits before the point, or one more than the lower bound has.
constexpr std::size_t kWholeDigits = 9;

PatternPtr one_digit(char first, char last) {
  return one_of({static_cast<char32_t>(first), static_cast<char32_t>(last)});
}
char next_digit(char digit) { return static_cast<char>(digit + 1); }
char digit_before(char digit) { return static_cast<char>(digit - 1); }

/// Fractions: the digits after the point, compared as if zeros followed them. `room`: the most digits there may be.
class Fractions {
 public:
  Fractions(std::string_view low, bool above_low, std::string_view high, bool below_high)
      : low_(low), high_(high), above_low_(above_low), below_high_(below_high) {}

  static PatternPtr any(int room) { return room <= 0 ? sequence({}) : repeat(one_digit('0', '9'), 0, room); }
  /// After a whole number: nothing, or a point and digits.
  static PatternPtr any_after_point(int room) {
    return room <= 0 ? sequence({}) : maybe(sequence({literal("."), repeat(one_digit('0', '9'), 1, room)}));
  }

  PatternPtr at_least(int room) const {
    if (!low_.empty()) return sequence({literal("."), not_below(low_, room)});
    return above_low_ ? sequence({literal("."), positive(room)}) : any_after_point(room);
  }

  PatternPtr at_most(int room) const {
    if (high_.empty()) return below_high_ ? either({}) : maybe(sequence({literal("."), zeros(1, room)}));
    return maybe(sequence({literal("."), not_above(high_, room, /*begun=*/false)}));
  }

  PatternPtr between(int room) const {
    // Nothing after the whole number is a fraction of zero.
    const bool zero = low_.empty() && !above_low_ && (!high_.empty() || !below_high_);
    const PatternPtr digits = sequence({literal("."), both(low_, high_, room, /*begun=*/false)});
    return zero ? maybe(digits) : digits;
  }

 private:
  static PatternPtr zeros(int least, int room) {
    return room < least ? either({}) : repeat(one_digit('0', '0'), least, room);
  }
  /// Digits that are not all zeros.
  static PatternPtr positive(int room) {
    PatternPtr result = either({});
    for (int i = 1; i <= room; ++i)
      result = either({sequence({one_digit('0', '0'), result}), sequence({one_digit('1', '9'), any(i - 1)})});
    return result;
  }

  PatternPtr not_below(std::string_view bound, int room) const {
    if (bound.empty()) return above_low_ ? positive(room) : any(room);
    if (room <= 0) return either({});
    const char digit = bound.front();
    std::vector<PatternPtr> ways = {sequence({one_digit(digit, digit), not_below(bound.substr(1), room - 1)})};
    if (digit < '9') ways.push_back(sequence({one_digit(next_digit(digit), '9'), any(room - 1)}));
    return either(std::move(ways));
  }

  /// `begun`: a digit has been written, so that the number may end.
  PatternPtr not_above(std::string_view bound, int room, bool begun) const {
    if (bound.empty()) return below_high_ ? either({}) : zeros(begun ? 0 : 1, room);
    if (room <= 0) return begun ? sequence({}) : either({});
    const char digit = bound.front();
    std::vector<PatternPtr> ways = {
        sequence({one_digit(digit, digit), not_above(bound.substr(1), room - 1, /*begun=*/true)})};
    if (digit > '0') ways.push_back(sequence({one_digit('0', digit_before(digit)), any(room - 1)}));
    if (begun) ways.push_back(sequence({}));
    return either(std::move(ways));
  }

  /// Above zero and not above the bound.
  PatternPtr positive_not_above(std::string_view bound, int room) const {
    if (bound.empty() || room <= 0) return either({});
    const char digit = bound.front();
    if (digit == '0') return sequence({one_digit('0', '0'), positive_not_above(bound.substr(1), room - 1)});
    std::vector<PatternPtr> ways = {
        sequence({one_digit('0', '0'), positive(room - 1)}),
        sequence({one_digit(digit, digit), not_above(bound.substr(1), room - 1, /*begun=*/true)})};
    if (digit > '1') ways.push_back(sequence({one_digit('1', digit_before(digit)), any(room - 1)}));
    return either(std::move(ways));
  }

  PatternPtr both(std::string_view low, std::string_view high, int room, bool begun) const {
    if (low.empty()) return above_low_ ? positive_not_above(high, room) : not_above(high, room, begun);
    if (high.empty() || room <= 0) return either({});
    const char a = low.front(), b = high.front();
    if (a > b) return either({});
    low.remove_prefix(1);
    high.remove_prefix(1);
    if (a == b) return sequence({one_digit(a, a), both(low, high, room - 1, /*begun=*/true)});
    std::vector<PatternPtr> ways = {sequence({one_digit(a, a), not_below(low, room - 1)}),
                                    sequence({one_digit(b, b), not_above(high, room - 1, /*begun=*/true)})};
    if (b - a > 1) ways.push_back(sequence({one_digit(next_digit(a), digit_before(b)), any(room - 1)}));
    return either(std::move(ways));
  }

  std::string_view low_, high_;
  bool above_low_, below_high_;
};

std::uint64_t number_of(const std::string& digits) {
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

int room_after(std::size_t whole_digits) { return kMostDigits - static_cast<int>(whole_digits); }

/// Numbers without sign, from |low| to |high|.
PatternPtr magnitudes(const Decimal& low, const std::optional<Decimal>& high) {
  const std::uint64_t first = number_of(low.whole);
  const Fractions fractions(low.fraction, low.strict, high ? std::string_view(high->fraction) : std::string_view(),
                            high && high->strict);
  const std::size_t digits =
      high ? high->whole.size() : std::min<std::size_t>(kMostDigits, std::max(kWholeDigits, low.whole.size() + 1));
  const std::uint64_t last = high ? number_of(high->whole) : number_of(std::string(digits, '9'));
  if (first > last) return either({});
  if (high && first == last) return sequence({literal(low.whole), fractions.between(room_after(digits))});
  std::vector<PatternPtr> ways = {sequence({literal(low.whole), fractions.at_least(room_after(low.whole.size()))})};
  const std::uint64_t inner = high ? last - 1 : last;
  if (high) ways.push_back(sequence({literal(high->whole), fractions.at_most(room_after(digits))}));
  if (first + 1 <= inner)
    ways.push_back(sequence({json_natural(first + 1, inner), Fractions::any_after_point(room_after(digits))}));
  return either(std::move(ways));
}

}  // namespace

std::optional<Decimal> decimal_of(const nlohmann::ordered_json& number, bool strict) {
  // The shortest text that is read as this number: [-]digits[.digits][e[+-]digits].
  std::string text = number.dump();
  Decimal result{.strict = strict};
  result.negative = text.front() == '-';
  if (result.negative) text.erase(0, 1);
  int exponent = 0;
  if (const std::size_t e = text.find('e'); e != text.npos) {
    const std::size_t from = text[e + 1] == '+' ? e + 2 : e + 1;
    std::from_chars(text.data() + from, text.data() + text.size(), exponent);
    text.erase(e);
  }
  if (exponent < -2 * kMostDigits || exponent > 2 * kMostDigits) return std::nullopt;
  const std::size_t point = std::min(text.find('.'), text.size());
  int before = static_cast<int>(point) + exponent;  // digits before the point
  if (point < text.size()) text.erase(point, 1);
  for (; before <= 0; ++before) text.insert(text.begin(), '0');
  if (before > static_cast<int>(text.size())) text.append(static_cast<std::size_t>(before) - text.size(), '0');
  result.whole = text.substr(0, static_cast<std::size_t>(before));
  result.fraction = text.substr(static_cast<std::size_t>(before));
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size() - 1));
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);  // npos + 1 is 0
  if (result.whole == "0" && result.fraction.empty()) result.negative = false;
  if (result.whole.size() + result.fraction.size() > static_cast<std::size_t>(kMostDigits)) return std::nullopt;
  return result;
}

PatternPtr json_number_between(const std::optional<Decimal>& low, const std::optional<Decimal>& high) {
  const bool low_negative = !low || low->negative, high_negative = high && high->negative;
  std::vector<PatternPtr> ways;
  if (!high_negative) ways.push_back(magnitudes(low_negative ? Decimal() : *low, high));
  // Zero has no sign.
  const Decimal positive{.strict = true};
  if (low_negative) ways.push_back(sequence({literal("-"), magnitudes(high_negative ? *high : positive, low)}));
  return either(std::move(ways));
}

}  // namespace dllm::constrain
