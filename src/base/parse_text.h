#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace dllm {

/// The whole text as a number; nullopt for anything else.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

/// 1/true/on/enabled or 0/false/off/disabled.
std::optional<bool> parse_bool(std::string_view text);

}  // namespace dllm
