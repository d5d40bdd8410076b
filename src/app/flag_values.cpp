#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "app/flags.h"

namespace dllm::app {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

template <class T>
Expected<void> number_in_range(const std::string& text, T minimum, T maximum, T& target) {
  const auto value = parse_number<T>(text);
  if (!value) return bad_value(fmt::format("'{}' is not {}", text, std::is_integral_v<T> ? "an integer" : "a number"));
  // Negated, so that NaN is refused.
  if (!(*value >= minimum && *value <= maximum))
    return bad_value(fmt::format("{} is outside [{}, {}]", text, minimum, maximum));
  target = *value;
  return {};
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string choice_hint(std::string_view word, const std::vector<std::string>& choices) {
  const std::string near = nearest(word, choices);
  if (!near.empty()) return fmt::format("did you mean '{}'?", near);
  return fmt::format("known: {}", fmt::join(choices, ", "));
}

Error bad_value(std::string what, std::string hint) {
  return {ErrorCode::kUsage, std::move(what), "", std::move(hint)};
}

std::optional<bool> parse_bool(std::string_view text) {
  for (std::string_view yes : {"1", "true", "on", "enabled"})
    if (text == yes) return true;
  for (std::string_view no : {"0", "false", "off", "disabled"})
    if (text == no) return false;
  return std::nullopt;
}

Apply into(std::string& target) {
  return [&target](const std::string& value) -> Expected<void> {
    target = value;
    return {};
  };
}

Apply into(std::string& target, std::vector<std::string> choices) {
  return [&target, choices = std::move(choices)](const std::string& value) -> Expected<void> {
    if (std::find(choices.begin(), choices.end(), value) == choices.end())
      return bad_value(fmt::format("'{}' is unknown", value), choice_hint(value, choices));
    target = value;
    return {};
  };
}

Apply into(std::vector<std::string>& target) {
  return [&target](const std::string& value) -> Expected<void> {
    target.push_back(value);
    return {};
  };
}

Apply into(bool& target) {
  return [&target](const std::string& value) -> Expected<void> {
    const auto parsed = parse_bool(value);
    if (!parsed)
      return bad_value(fmt::format("'{}' is neither true nor false", value),
                       "1/true/on/enabled or 0/false/off/disabled");
    target = *parsed;
    return {};
  };
}

Apply into(std::int32_t& target, std::int32_t minimum, std::int32_t maximum) {
  return [&target, minimum, maximum](const std::string& value) {
    return number_in_range(value, minimum, maximum, target);
  };
}

Apply into(double& target, double minimum, double maximum) {
  return [&target, minimum, maximum](const std::string& value) {
    return number_in_range(value, minimum, maximum, target);
  };
}

Apply into(std::uint64_t& target) {
  return [&target](const std::string& value) -> Expected<void> {
    // llama.cpp's spelling of "another one each time"; the seed is reported, so the run can still be repeated.
    if (value == "-1") {
      target = std::random_device{}();
      return {};
    }
    const auto parsed = parse_number<std::uint64_t>(value);
    if (!parsed) return bad_value(fmt::format("'{}' is not an integer from 0 to 2^64-1", value), "-1: a random one");
    target = *parsed;
    return {};
  };
}

}  // namespace dllm::app
