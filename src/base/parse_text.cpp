#include "base/parse_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <locale>
#include <sstream>
#include <string>

namespace dllm {
namespace {

/// How many of the first characters are digits.
std::size_t digits_of(std::string_view text) { return std::min(text.find_first_not_of("0123456789"), text.size()); }

/// Whether all of `text`, which has no sign, is digits with a point and an exponent.
bool is_decimal(std::string_view text) {
  const std::size_t whole = digits_of(text);
  text.remove_prefix(whole);
  std::size_t fraction = 0;
  if (text.starts_with('.')) {
    fraction = digits_of(text.substr(1));
    text.remove_prefix(1 + fraction);
  }
  if (whole + fraction == 0) return false;
  if (text.empty()) return true;
  if (text.front() != 'e' && text.front() != 'E') return false;
  text.remove_prefix(1);
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && digits_of(text) == text.size();
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

/// "nan", or with characters in parentheses, which C's library permits and nobody gives a meaning.
bool is_nan(std::string_view lower) {
  if (!lower.starts_with("nan")) return false;
  lower.remove_prefix(3);
  if (lower.empty()) return true;
  if (!lower.starts_with('(') || !lower.ends_with(')')) return false;
  return lower.substr(1, lower.size() - 2).find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == lower.npos;
}

/// Numbers are read by a stream with the classic locale: strtod() obeys the process's, and its variants with a locale
/// of their own have another name on each system.
template <class T>
std::optional<T> read_by_stream(std::string_view text) {
  const bool negative = text.starts_with('-');
  const std::string_view magnitude = text.substr(negative ? 1 : 0);
  if (!is_decimal(magnitude)) {
    const std::string word = lower_case(magnitude);
    const T sign = negative ? T{-1} : T{1};
    if (word == "inf" || word == "infinity") return sign * std::numeric_limits<T>::infinity();
    if (is_nan(word)) return std::copysign(std::numeric_limits<T>::quiet_NaN(), sign);
    return std::nullopt;
  }
  std::istringstream stream{std::string(text)};
  stream.imbue(std::locale::classic());
  T value{};
  stream >> value;
  // A stream fails with the largest number (libstdc++) or infinity (libc++) where the number is too large. libc++ also
  // fails, with the right value, where it is subnormal. One that is too small becomes zero, which from_chars() refuses.
  if (std::isinf(value) || (stream.fail() && std::abs(value) == std::numeric_limits<T>::max())) return std::nullopt;
  const std::string_view significand = magnitude.substr(0, magnitude.find_first_of("eE"));
  if (value == 0 && significand.find_first_of("123456789") != significand.npos) return std::nullopt;
  return value;
}

#if defined(__cpp_lib_to_chars)
template <class T>
std::optional<T> read_by_chars(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}
#endif

}  // namespace

namespace detail {

std::optional<double> parse_double_by_stream(std::string_view text) { return read_by_stream<double>(text); }
std::optional<float> parse_float_by_stream(std::string_view text) { return read_by_stream<float>(text); }

}  // namespace detail

#if defined(__cpp_lib_to_chars)
std::optional<double> parse_double(std::string_view text) { return read_by_chars<double>(text); }
std::optional<float> parse_float(std::string_view text) { return read_by_chars<float>(text); }
#else
std::optional<double> parse_double(std::string_view text) { return detail::parse_double_by_stream(text); }
std::optional<float> parse_float(std::string_view text) { return detail::parse_float_by_stream(text); }
#endif

std::optional<bool> parse_bool(std::string_view text) {
  for (std::string_view yes : {"1", "true", "on", "enabled"})
    if (text == yes) return true;
  for (std::string_view no : {"0", "false", "off", "disabled"})
    if (text == no) return false;
  return std::nullopt;
}

}  // namespace dllm
