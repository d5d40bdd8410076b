#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "app/cli/flags.h"

namespace dllm::app {
namespace {

template <class T>
Expected<void> number_in_range(const std::string& text, T minimum, T maximum, T& target) {
  const auto value = parse_number<T>(text);
  if (!value) return bad_value(fmt::format("'{}' is not {}", text, std::is_integral_v<T> ? "an integer" : "a number"));
  // Negated, so that NaN is rejected.
  if (!(*value >= minimum && *value <= maximum))
    return bad_value(fmt::format("{} is outside [{}, {}]", text, minimum, maximum));
  target = *value;
  return {};
}

}  // namespace

Error bad_value(std::string what, std::string hint) {
  return {ErrorCode::kUsage, std::move(what), "", std::move(hint)};
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

Apply into(std::optional<std::int32_t>& target, std::int32_t minimum, std::int32_t maximum, std::string absent) {
  return [&target, minimum, maximum, absent = std::move(absent)](const std::string& value) -> Expected<void> {
    std::int32_t number = 0;
    if (auto read = number_in_range(value, minimum, maximum, number); !read)
      return bad_value(read.error().what, "if left out: " + absent);
    target = number;
    return {};
  };
}

Apply into(double& target, double minimum, double maximum) {
  return [&target, minimum, maximum](const std::string& value) {
    return number_in_range(value, minimum, maximum, target);
  };
}

Apply into(std::uint64_t& target) {
  return [&target](const std::string& value) -> Expected<void> {
    // llama.cpp's spelling of "a random seed"; the seed is reported, so the run can be repeated.
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
