#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>

namespace dllm {

/// The whole text as a decimal number with an optional exponent, in any locale: what std::from_chars() reads, so no
/// space, no plus sign and no hexadecimal digits, but "inf" and "nan". nullopt for anything else, and for numbers that
/// are too large or too small for the type.
std::optional<double> parse_double(std::string_view text);
std::optional<float> parse_float(std::string_view text);

namespace detail {

/// The two functions for standard libraries without std::from_chars() for these types, as libc++ before version 20. The
/// results are the same.
std::optional<double> parse_double_by_stream(std::string_view text);
std::optional<float> parse_float_by_stream(std::string_view text);

}  // namespace detail

/// The whole text as a number; nullopt for anything else.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  if constexpr (std::same_as<T, double>) {
    return parse_double(text);
  } else if constexpr (std::same_as<T, float>) {
    return parse_float(text);
  } else {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
    return value;
  }
}

/// 1/true/on/enabled or 0/false/off/disabled.
std::optional<bool> parse_bool(std::string_view text);

}  // namespace dllm
